"""Protobuf messages of TensorFlow and TensorFlow Serving where their classes are missing."""
