"""SavedModel directory <-> TensorFlow Serving API."""
