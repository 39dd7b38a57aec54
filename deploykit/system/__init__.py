"""The machine: CPU, memory, GPU, and what TensorFlow finds on it."""
