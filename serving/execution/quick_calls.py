"""Which calls are so quick that handing them to another thread costs more than it gains.

They are computed in the thread that took them in, where TensorFlow ends nothing at a deadline and
where they count in no slot. So the time of one call is no reason by itself: the next may be larger,
or go round a loop as often as its input says.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from deploykit.transforms.core.control_flow import CASE_OPS, CONTROL_FLOW_OPS, IF_OPS
from deploykit.transforms.core.protos import MetaGraphDef
from deploykit.transforms.core.tensors import Array

SECONDS = 0.001
_BRANCHING = CONTROL_FLOW_OPS | IF_OPS | CASE_OPS | {"While", "StatelessWhile", "For"}

Sizes = tuple[tuple[str, tuple[int, ...]], ...]


class QuickCalls:
    """What is known of the calls of a model; may be asked and told from many threads at once."""

    def __init__(self, meta: MetaGraphDef, unsteady: Iterable[str] = ()) -> None:
        """Know nothing yet; calls of `unsteady` signatures are never quick."""
        graph = meta.graph_def
        bodies = (graph.node, *(function.node_def for function in graph.library.function))
        self._steady = not any(node.op in _BRANCHING for nodes in bodies for node in nodes)
        self._unsteady = frozenset(unsteady)
        self._largest: dict[str, Sizes] = {}  # of those that were quick, by signature

    def include(self, signature: str, feeds: Mapping[str, Array]) -> bool:
        """Say whether a call is in no size larger than one that was quick."""
        largest = self._largest.get(signature)
        return largest is not None and _within(_sizes(feeds), largest)

    def note(self, signature: str, feeds: Mapping[str, Array], seconds: float) -> None:
        """Take down how long a call took."""
        largest = self._largest.get(signature)
        if seconds < SECONDS:
            if self._steady and signature not in self._unsteady:
                sizes = _sizes(feeds)
                if largest is None or not _within(sizes, largest):
                    self._largest[signature] = sizes
        elif largest is not None and _within(_sizes(feeds), largest):
            self._largest.pop(signature, None)


def _sizes(feeds: Mapping[str, Array]) -> Sizes:
    """Return the sizes of each input; strings count their bytes as well."""
    return tuple((alias, (*array.shape, _bytes(array))) for alias, array in sorted(feeds.items()))


def _bytes(array: Array) -> int:
    return sum(map(len, array.flat)) if array.dtype == np.object_ else 0


def _within(sizes: Sizes, largest: Sizes) -> bool:
    """Say whether no size is larger; inputs that are not the same cannot be compared."""
    return [(a, len(s)) for a, s in sizes] == [(a, len(s)) for a, s in largest] and all(
        size <= most
        for (_, given), (_, known) in zip(sizes, largest, strict=True)
        for size, most in zip(given, known, strict=True)
    )
