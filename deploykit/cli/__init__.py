"""The command-line interface: options, output and exit status."""
