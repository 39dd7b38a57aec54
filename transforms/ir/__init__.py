"""Graphs in memory: nodes, edges, functions, patterns, and the transform pipeline."""
