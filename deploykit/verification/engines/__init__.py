"""Comparison of another engine's outputs with TensorFlow's."""
