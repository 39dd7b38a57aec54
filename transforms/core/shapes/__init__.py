"""The shapes of tensors, known without starting TensorFlow where that is possible."""
