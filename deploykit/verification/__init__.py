"""Numerical verification of rewritten graphs."""
