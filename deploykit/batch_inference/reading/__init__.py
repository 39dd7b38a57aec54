"""Data of every kind in parts that any process can read alone."""
