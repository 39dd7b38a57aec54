"""Loads: calls that arrive whether others are answered or not."""
