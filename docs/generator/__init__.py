"""Writes the pages of docs/ that say what the code says: `make docs`."""
