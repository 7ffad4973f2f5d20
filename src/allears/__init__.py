"""allears: trains speech recognisers on any number of devices, with one command and one result.

Importing the package loads nothing heavy; ``allears.run`` joins the parts.
"""

__version__ = "0.1.0"
