"""Tensors as people read them."""

from collections.abc import Sequence


def described(dtype: str, shape: Sequence[int] | None) -> str:
    """Return type and shape: `float32[?, 224, 224, 3]`; a size of -1 is open."""
    if shape is None:
        return dtype
    return f"{dtype}[{', '.join('?' if size < 0 else str(size) for size in shape)}]"
