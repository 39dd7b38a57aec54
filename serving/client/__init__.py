"""Clients of the TensorFlow Serving API and the Open Inference Protocol, without TensorFlow."""
