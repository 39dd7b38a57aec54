"""Weights and biases of int8 layers, chosen on samples in execution order."""
