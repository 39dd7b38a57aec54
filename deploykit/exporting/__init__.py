"""A model becomes a version that TensorFlow Serving loads, and the files that run it."""
