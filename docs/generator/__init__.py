"""Generates the pages of docs/ that come from the code: `make docs`."""
