"""What a record holds: the type, shape and meaning of each of its features."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from deploykit.transforms.core.display.documents import IfSet
from deploykit.transforms.core.errors import GraphError

LISTS = ("float32", "int64", "string")  # what an Example holds as it is
RAW = ("uint8", "int8", "uint16", "int16", "int32", "float16", "float64", "bool",
       "int64", "float32")  # what decode_raw makes of bytes  # fmt: skip


@dataclass(frozen=True)
class Feature:
    """One value of every record; a size that differs from record to record is None.

    `content` says what a string holds: "image", an encoded file; "raw", the little-endian bytes of
    an array of this dtype and shape; "", the value itself.
    """

    dtype: str
    shape: tuple[Annotated[int, Meta(ge=0)] | None, ...] = ()
    content: IfSet[Annotated[str, Meta(pattern=r"\A(image|raw)?\Z")]] = ""

    def check(self, name: str) -> None:
        """Raise GraphError for a type that records of this content cannot hold."""
        image = ("string",) if self.content == "image" else LISTS
        known = RAW if self.content == "raw" else image
        if self.dtype not in known:
            raise GraphError(
                "not-one-of", what=f"the type of feature '{name}'", known=known, got=self.dtype
            )

    def __str__(self) -> str:
        sizes = ", ".join("?" if size is None else str(size) for size in self.shape)
        return f"{self.dtype} [{sizes}]{f', {self.content}' if self.content else ''}"
