"""A version that was exported, with its signatures."""

from collections.abc import Iterator, Sequence

from deploykit.exporting.export import Exported
from deploykit.serving.protocol.photo_names import photos_in_words
from deploykit.serving.protocol.signatures import sizes, tensor_of
from deploykit.text.templates import size


def lines(result: Exported) -> Iterator[str]:
    """Yield the signatures and the folder of the version."""
    for name, each in sorted(result.signatures.items()):
        yield f"{name} ({each.method_name})"
        for side, infos in (("input", each.inputs), ("output", each.outputs)):
            for alias, tensor in sorted((alias, tensor_of(info)) for alias, info in infos.items()):
                images = photos_in_words(tensor)
                described = f"{tensor.dtype} {_shape(sizes(tensor))}{images and ', '}{images}"
                yield f"  {side} {alias}: {described}"
    yield from result.engine.lines()
    if result.manifests:
        yield f"written next to it: {', '.join(path.name for path in result.manifests)}"
    warm = f", {result.warm_up_requests} warm-up requests" if result.warm_up_requests else ""
    yield f"{result.folder}: {size(result.bytes)}{warm}"


def _shape(shape: Sequence[int | None] | None) -> str:
    if shape is None:
        return "of any shape"
    return f"[{', '.join('any' if size is None else str(size) for size in shape)}]"
