"""TensorFlow Serving's API as plain Python: protos, tensors, signatures, errors."""
