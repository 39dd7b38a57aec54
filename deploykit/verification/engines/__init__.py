"""Whether another engine gives the outputs of TensorFlow."""
