"""A model server: SavedModel folders behind the TensorFlow Serving API."""
