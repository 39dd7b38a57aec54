"""Proof against the original: each graph goes through the Graph Transform Tool and deploykit."""
