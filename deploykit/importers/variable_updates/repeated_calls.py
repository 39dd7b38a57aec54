"""The values of a graph's variables over repeated runs."""

from collections.abc import Sequence

import numpy as np

from deploykit.importers.variable_updates.updated_variables import EPSILON
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import PLACEHOLDER_OPS
from deploykit.transforms.ir.tensors import Array, numpy_type
from deploykit.transforms.runtime.child_process import call

CALLS = 100  # enough runs for convergence
_FED = 2  # above 1, so that values multiplied by an input grow

History = list[Array]
"""Values of a variable before and after the first run and after the last two runs. For another
tensor, its values in the first two and the last two runs."""


def repeat_calls(
    graph: Graph, left: dict[str, str], watched: Sequence[str]
) -> tuple[list[History], list[History]]:
    """Run a filled graph repeatedly in a child process with constant inputs.

    Args:
        graph: a graph whose variables are constants.
        left: the tensor with the new value of each variable, by variable.
        watched: names of further tensors.

    It returns the histories of the variables and of the watched tensors.
    GraphError: the graph cannot run on synthetic inputs.
    """
    calls = graph.copy()
    calls.inputs, calls.outputs = (), (*left.values(), *watched)
    calls.prune()
    fed = {node.name: _made_up(node) for node in calls if node.op in PLACEHOLDER_OPS}
    values = {variable: graph[variable].value for variable in left}
    content = b"".join(calls.serialized())
    result = call(f"{__name__}:repeat", content, values, fed, list(calls.outputs))
    return result[: len(left)], result[len(left) :]


def _made_up(placeholder: Node) -> Array:
    shape, dtype = placeholder.attr("shape"), placeholder.attr("dtype")
    if shape is None:
        raise GraphError("input-rank-unknown", name=placeholder.name)
    value = b"" if dtype == "string" else _FED
    return np.full([max(size, 1) if size else 0 for size in shape], value, numpy_type(dtype))


def repeat(
    content: bytes, values: dict[str, Array], fed: dict[str, Array], fetched: list[str]
) -> list[History]:
    """Run a graph repeatedly; `fetched` begins with the new value of each variable."""
    from deploykit.transforms.runtime.session import Session

    session = Session(content)
    names = [name for name in values if session.has(name)]
    seen: list[list[Array]] = []
    now = list(values.values())
    for _ in range(CALLS):
        before = dict(zip(values, now, strict=True))
        seen.append(session.run(fetched, fed | {name: before[name] for name in names}))
        seen[2:-2] = []
        now = seen[-1][: len(now)]
    left = zip(values.values(), *(seen[i] for i in (0, -2, -1)), strict=False)
    watched = zip(*(results[len(now) :] for results in seen), strict=True)
    return [list(history) for history in (*left, *watched)]


def settles(history: History) -> bool:
    """Return whether the last change is at most 0.001 of the first one, or rounding noise."""
    return _changes_at_most(1e-3, history)


def stays_finite(history: History) -> bool:
    """Return whether a float tensor's last change is at most its first one, so it does not grow."""
    return history[-1].dtype.name in EPSILON and _changes_at_most(1.0, history)


def _changes_at_most(share: float, history: History) -> bool:
    """Compare the last change with the first one; infinity and NaN count as large."""
    at_first, first, before_last, last = history
    noise = 4 * EPSILON[last.dtype.name] * _size(last)
    with np.errstate(invalid="ignore", over="ignore"):
        changes = _size(first - at_first), _size(last - before_last)
    return changes[1] <= max(share * changes[0], noise) < np.inf


def _size(values: Array) -> float:
    return float(np.abs(values.astype(np.float64)).max(initial=0.0))
