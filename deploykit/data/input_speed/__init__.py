"""Measures how fast a pipeline feeds a model, and what limits it."""
