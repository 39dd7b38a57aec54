"""Measured comparisons: each prints a table and writes JSON. Tests never assert on a clock."""
