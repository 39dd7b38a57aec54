"""Quantization: calibration, int8 search, quantization-aware models, 8-bit weights."""
