"""SavedModel directory <-> TensorFlow Serving API; export and serving will live here."""
