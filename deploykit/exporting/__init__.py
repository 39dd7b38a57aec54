"""Export of models as versions for TensorFlow Serving, with deployment files."""
