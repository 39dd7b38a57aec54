"""int8 quantization of graphs: plans, ranges, weights, rounding and kernels."""
