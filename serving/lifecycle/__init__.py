"""Finds, loads, replaces and unloads models and their versions."""
