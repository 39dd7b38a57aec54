"""Graph to graph: every module here is one transform; what they share is in `core`."""
