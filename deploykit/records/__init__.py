"""Data -> TFRecord shards that can be checked: sources, encoding, framing, index."""
