"""``python -m allears``: the command line."""

from allears.cli.main import main

main()
