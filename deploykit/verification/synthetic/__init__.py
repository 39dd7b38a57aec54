"""Synthetic inputs that a graph accepts: shapes, numbers, strings and indices."""
