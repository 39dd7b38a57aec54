"""Converts data into TFRecord shards with checksums: sources, encoding, index."""

from typing import Literal, get_args

SourceKind = Literal["images", "csv", "parquet", "jsonl", "npz", "idx", "cifar", "text"]
KINDS: tuple[SourceKind, ...] = get_args(SourceKind)
