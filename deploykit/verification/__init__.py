"""Proof that a rewrite kept the numbers."""
