"""The command line: parse, call, print. No logic; each command imports what it needs when it runs."""
