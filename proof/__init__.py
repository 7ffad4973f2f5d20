"""What the issues promise, measured: ``make proof NAME=first-light`` prints a row for each line and keeps it."""
