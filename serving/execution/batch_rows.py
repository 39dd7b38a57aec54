"""How many examples a call brings, where the signature says that the first axis counts them."""

from collections.abc import Mapping

from deploykit.serving.protocol.signatures import Signature
from deploykit.transforms.core.tensors import Array


def rows_of(signature: Signature, feeds: Mapping[str, Array]) -> int | None:
    """Return how many examples a call brings, or None where it cannot share a batch."""
    counts = {len(array) if array.ndim else None for array in feeds.values()}
    count = counts.pop() if len(counts) == 1 else None
    return count if count and may_share(signature) else None


def may_share(signature: Signature) -> bool:
    """Say whether calls of a signature may share a batch: the first size of all tensors is open."""
    return all(
        tensor.shape is None or (tensor.shape and tensor.shape[0] < 0)
        for tensor in (*signature.inputs.values(), *signature.outputs.values())
    )
