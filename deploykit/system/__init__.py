"""Information on the machine: CPU, memory, GPU, and how TensorFlow uses it."""
