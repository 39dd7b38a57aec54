"""The command line and the public Python API of deploykit."""
