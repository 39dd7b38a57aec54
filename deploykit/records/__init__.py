"""Data -> TFRecord shards that can be checked: sources, encoding, index."""

from typing import Literal, get_args

SourceKind = Literal["images", "csv", "npz", "idx", "cifar", "text"]
KINDS: tuple[SourceKind, ...] = get_args(SourceKind)
