"""Int8 from the scales that the fake-quants of a quantization-aware model state."""
