"""What is looked at before a graph is handed to TensorFlow, or an op is written into one."""
