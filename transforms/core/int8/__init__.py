"""Computing in 8 bits: which layers, on which ranges, by which of TensorFlow's ops."""
