"""The machine: what it has, and what TensorFlow makes of it."""
