"""Writes and reads version folders in TensorFlow Serving's format."""
