"""Transforms run on a graph, and what is said of them."""
