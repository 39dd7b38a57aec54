"""A version that was written, with its signatures."""

from collections.abc import Sequence

from deploykit.exporting.export import Exported
from deploykit.serving.protocol.signatures import described
from deploykit.text.tables import size


def lines(result: Exported) -> list[str]:
    """Return the signatures, and where the version lies."""
    found = []
    for name, each in described(result.signatures).items():
        found.append(f"{name} ({each['method']})")
        for side in ("inputs", "outputs"):
            for alias, tensor in each[side].items():
                found.append(f"  {side[:-1]} {alias}: {tensor['dtype']} {_shown(tensor['shape'])}")
    if result.manifests:
        found.append(f"written beside it: {', '.join(path.name for path in result.manifests)}")
    warm = f", {result.warm_up_requests} requests to warm up" if result.warm_up_requests else ""
    return [*found, f"{result.folder}: {size(result.bytes)}{warm}"]


def _shown(shape: Sequence[int | None] | None) -> str:
    if shape is None:
        return "of any shape"
    return f"[{', '.join('any' if size is None else str(size) for size in shape)}]"
