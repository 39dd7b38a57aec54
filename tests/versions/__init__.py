"""The main path in fresh environments of several TensorFlow and Python versions."""
