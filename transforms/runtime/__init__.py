"""TensorFlow and NumPy in this process or a child process, with limits on time and memory."""
