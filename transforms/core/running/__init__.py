"""Nodes that are run: by NumPy here, or by TensorFlow in a child process."""
