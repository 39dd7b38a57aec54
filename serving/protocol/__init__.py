"""TensorFlow Serving's API in plain Python: protos, tensors, signatures and errors."""
