"""Where each node of a graph really runs."""
