"""int8 layers of a quantization-aware model, planned from its fake-quant ops."""
