"""The engines that run a graph: TensorFlow and OpenVINO."""
