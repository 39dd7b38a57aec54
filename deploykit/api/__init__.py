"""Public functions for Python and the command line, named like the commands."""
