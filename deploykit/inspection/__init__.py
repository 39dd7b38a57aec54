"""What is in a model, what two models do not have in common, and where each node runs."""
