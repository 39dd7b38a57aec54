"""A version that was written, with its signatures."""

from collections.abc import Sequence

from deploykit.exporting.export import Exported
from deploykit.serving.protocol.photo_names import photos_in_words
from deploykit.serving.protocol.signatures import sizes, tensor_of
from deploykit.text.tables import size


def lines(result: Exported) -> list[str]:
    """Return the signatures, and where the version lies."""
    found = []
    for name, each in sorted(result.signatures.items()):
        found.append(f"{name} ({each.method_name})")
        for side, infos in (("input", each.inputs), ("output", each.outputs)):
            for alias, tensor in sorted((alias, tensor_of(info)) for alias, info in infos.items()):
                photos = photos_in_words(tensor)
                found.append(f"  {side} {alias}: {tensor.dtype} {_shown(sizes(tensor))}"
                             f"{photos and ', '}{photos}")  # fmt: skip
    found += result.engine.lines()
    if result.manifests:
        found.append(f"written beside it: {', '.join(path.name for path in result.manifests)}")
    warm = f", {result.warm_up_requests} requests to warm up" if result.warm_up_requests else ""
    return [*found, f"{result.folder}: {size(result.bytes)}{warm}"]


def _shown(shape: Sequence[int | None] | None) -> str:
    if shape is None:
        return "of any shape"
    return f"[{', '.join('any' if size is None else str(size) for size in shape)}]"
