"""A Qt resource file is a header, the files one behind the other, and a tree of their names."""

import struct
from collections.abc import Iterator


def files(content: bytes) -> Iterator[bytes]:
    """Yield the files in a resource file (.rcc), as stored: those that Qt compressed stay so.

    Format: "qres", version, then where the tree, the files and the names begin, each as a
    big-endian uint32; each file follows its length, also one.
    """
    tree, at, names = struct.unpack_from(">3I", content, offset=8)
    end = min((start for start in (tree, names) if start > at), default=len(content))
    while at < end:
        (length,) = struct.unpack_from(">I", content, at)
        yield content[at + 4 : at + 4 + length]
        at += 4 + length
