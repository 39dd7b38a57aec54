"""Formatters of the values that the public functions return."""
