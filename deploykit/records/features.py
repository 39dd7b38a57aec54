"""What a record holds: the type, shape and meaning of each of its features."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploykit.transforms.core.errors import GraphError

LISTS = ("float32", "int64", "string")  # what an Example holds as it is
RAW = ("uint8", "int8", "uint16", "int16", "int32", "float16", "float64", "bool",
       "int64", "float32")  # what decode_raw makes of bytes  # fmt: skip
CONTENTS = ("", "image", "raw")


@dataclass(frozen=True)
class Feature:
    """One value of every record; a size that differs from record to record is None.

    `content` says what a string holds: "image", an encoded file; "raw", the little-endian bytes of
    an array of this dtype and shape; "", the value itself.
    """

    dtype: str
    shape: tuple[int | None, ...] = ()
    content: str = ""

    def document(self) -> dict[str, Any]:
        """Return the feature as it stands in an index."""
        content = {"content": self.content} if self.content else {}
        return {"dtype": self.dtype, "shape": list(self.shape), **content}

    def __str__(self) -> str:
        sizes = ", ".join("?" if size is None else str(size) for size in self.shape)
        return f"{self.dtype} [{sizes}]{f', {self.content}' if self.content else ''}"


def feature_from(name: str, document: Any) -> Feature:
    """Return a feature as an index states it. GraphError: it states none that can be read."""
    if not isinstance(document, Mapping):
        raise GraphError(
            "unexpected", what=f"feature '{name}'", got=document, expected="dtype and shape"
        )
    dtype, shape = document.get("dtype"), document.get("shape")
    content = document.get("content", "")
    if content not in CONTENTS:
        raise GraphError(
            "not-one-of", what=f"what feature '{name}' holds", known=["image", "raw"], got=content
        )
    known = RAW if content == "raw" else ("string",) if content == "image" else LISTS
    if dtype not in known:
        raise GraphError("not-one-of", what=f"the type of feature '{name}'", known=known, got=dtype)
    if not isinstance(shape, list) or not all(
        size is None or (type(size) is int and size >= 0) for size in shape
    ):
        raise GraphError(
            "unexpected",
            what=f"the shape of feature '{name}'",
            got=shape,
            expected="a list of sizes",
        )
    return Feature(str(dtype), tuple(shape), content)
