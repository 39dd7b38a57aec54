"""Times of layers in float32 and int8, and benchmarks of whole graphs."""
