"""8-bit graphs: which values tensors take, and what is made of them."""
