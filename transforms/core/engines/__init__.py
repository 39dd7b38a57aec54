"""What computes a graph: TensorFlow, or another engine that reads it as it is."""
