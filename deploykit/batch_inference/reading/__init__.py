"""Splits data of every kind into parts that any process can read independently."""
