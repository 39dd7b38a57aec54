"""Synthetic inputs that a graph accepts: shapes, values, strings, indices."""
