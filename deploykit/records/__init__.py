"""Data -> TFRecord shards that can be checked: sources, encoding, index."""

KINDS = ("images", "csv", "npz", "idx", "cifar", "text")  # of sources
