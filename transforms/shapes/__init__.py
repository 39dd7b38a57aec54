"""Static shapes of a graph's tensors, without TensorFlow."""
