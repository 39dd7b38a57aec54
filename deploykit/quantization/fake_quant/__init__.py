"""Quantize a quantization-aware model by the scales that its fake-quants state."""
