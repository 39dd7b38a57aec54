"""Graph to graph: every module here is one transform; shared mechanism is in `transforms.core`."""
