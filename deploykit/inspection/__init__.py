"""What is in a model, and what two models do not have in common."""
