"""Runs requests of a loaded version: checks, batches and computes them. It knows no protocol."""
