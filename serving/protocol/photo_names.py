"""Names by which a version says that it takes photos: its signatures, their inputs, and nodes.

What makes a photo what the model takes lies in front of the model, in a scope of its own, so the
name of a signature's tensor tells servers and clients what is sent there.
"""

import re

from deploykit.serving.protocol.signatures import Tensor

SCOPE = "photos"
BYTES = "bytes"
"""Input of photos as files, strings [N], in the default signature."""
PIXELS = "pixels"
"""Signature, and its input, of decoded photos: uint8 [N, height, width, channels]."""
TENSORS = "tensors"
"""Signature of what the model itself takes."""
READY = "ready"
"""Node that holds what becomes of photos."""
KINDS = "JPEG, PNG, BMP or GIF"
PLACE = "; its place in the batch:"
"""Ends the sentence of a refusal; the place follows, counted from 0."""

_IN_SCOPE = rf"{SCOPE}(?:_\d+)?/(?:.+/)?"
_BYTES = re.compile(rf"{_IN_SCOPE}{BYTES}:0")
_PIXELS = re.compile(rf"{_IN_SCOPE}{PIXELS}:0")
_READY = re.compile(rf"{_IN_SCOPE}{READY}")


def takes_files(tensor: Tensor) -> bool:
    """Say whether photos are sent there as the bytes of their files."""
    return tensor.dtype == "string" and bool(_BYTES.fullmatch(tensor.name))


def takes_pixels(tensor: Tensor) -> bool:
    """Say whether decoded photos are sent there, of any size that the shape allows."""
    return tensor.dtype == "uint8" and bool(_PIXELS.fullmatch(tensor.name))


def is_ready(node: str) -> bool:
    """Say whether a node holds what becomes of photos."""
    return bool(_READY.fullmatch(node))


def photos_in_words(tensor: Tensor) -> str:
    """Return what is sent there, where it is photos; else nothing."""
    if takes_files(tensor):
        return f"photos as files ({KINDS})"
    if takes_pixels(tensor):
        return "pixels of photos, 0..255"
    return ""
