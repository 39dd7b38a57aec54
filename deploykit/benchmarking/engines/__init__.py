"""Runners of the execution engines; they run in child processes."""
