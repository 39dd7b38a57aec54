"""The runtimes that TensorFlow is measured beside; each is run by a Python without deploykit."""
