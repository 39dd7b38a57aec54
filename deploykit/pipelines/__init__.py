"""Pipelines of transforms on a graph: transform, optimize, int8, with verification of outputs."""
