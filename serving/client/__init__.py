"""The other end of the API, without TensorFlow."""
