"""Versions on disk, as TensorFlow Serving loads them."""
