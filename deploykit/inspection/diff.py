"""Differences between two graphs: nodes, their attributes and inputs, functions.

The comparison ignores the order of nodes and control inputs, the graph versions, and attributes
whose names start with an underscore, which are hints. `a` and `a:0` are the same tensor. Constants
are compared by value, not by their encoding.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from deploykit.inspection.summary import shape_text, tensor_summary, weights_in
from deploykit.rendering.templates import size
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.protos import AttrValue, FunctionDef
from deploykit.transforms.ir.tensors import Array


class GraphDifferences(TypedDict):
    """The differences between two graphs, as `deploykit diff --json` prints them."""

    equal: bool
    summary: dict[str, Any]
    added: list[str]
    removed: list[str]
    changed: list[dict[str, Any]]
    functions: list[dict[str, str]]
    producers: list[int]


def differences(first: Graph, second: Graph) -> GraphDifferences:
    """Return the differences as plain values; each pair is (first graph, second graph)."""
    shared = [_changes(node, second[node.name]) for node in first if node.name in second]
    added = [node.name for node in second if node.name not in first]
    removed = [node.name for node in first if node.name not in second]
    changed = [change for change in shared if len(change) > 1]
    functions = _functions(first, second)
    return {
        "equal": not (added or removed or changed or functions),
        "summary": overview(first, second),
        "added": added,
        "removed": removed,
        "changed": changed,
        "functions": functions,
        "producers": [graph.versions.producer for graph in (first, second)],
    }


def _changes(first: Node, second: Node) -> dict[str, Any]:
    """Return the name of two nodes and, under further keys, their differences."""
    change: dict[str, Any] = {"node": first.name}
    if first.op != second.op:
        change["op"] = [first.op, second.op]
    if _inputs(first) != _inputs(second):
        change["inputs"] = [list(first.inputs), list(second.inputs)]
    if first.device != second.device:
        change["device"] = [first.device, second.device]
    attributes = {}
    for name in sorted({*first.attrs, *second.attrs}):
        texts = None if name.startswith("_") else _attribute(first, second, name)
        if texts is not None:
            attributes[name] = texts
    if attributes:
        change["attributes"] = attributes
    return change


def _inputs(node: Node) -> tuple[tuple[str, ...], frozenset[str]]:
    return node.data_inputs, frozenset(node.control_inputs)


def _attribute(first: Node, second: Node, name: str) -> list[str | None] | None:
    """Return an attribute of both nodes as text, None where absent; None if both are equal."""
    pair = [node.attrs.get(name) for node in (first, second)]
    if pair[0] is None or pair[1] is None:
        return [node.attr_text(name) if name in node.attrs else None for node in (first, second)]
    if _bytes(pair[0]) == _bytes(pair[1]):
        return None
    texts = [node.attr_text(name) for node in (first, second)]
    if not (pair[0].HasField("tensor") and pair[1].HasField("tensor")):
        return [*texts]
    arrays = [node.attr(name) for node in (first, second)]
    if pair[0].tensor.dtype != pair[1].tensor.dtype or arrays[0].shape != arrays[1].shape:
        return [*texts]
    distance = _distance(arrays[0], arrays[1])
    return [texts[0], f"{texts[1]} ({distance})"] if distance else None


def _bytes(value: AttrValue | FunctionDef) -> bytes:
    return bytes(value.SerializeToString(deterministic=True))


def _distance(first: Array, second: Array) -> str:
    """Return the difference of two arrays of the same dtype and shape in words; empty: equal."""
    same = first == second
    if first.dtype.kind not in "OSUbiu":
        same |= np.isnan(first) & np.isnan(second)
    count = first.size - np.count_nonzero(same)
    if not count:
        return ""
    text = f"{count} of {first.size} values differ"
    if first.dtype.kind in "OSUb":
        return text
    wide = np.complex128 if first.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore"):
        farthest = np.abs(first[~same].astype(wide) - second[~same].astype(wide)).max()
    return f"{text}, by at most {farthest:.3g}" if np.isfinite(farthest) else text


def _functions(first: Graph, second: Graph) -> list[dict[str, str]]:
    """Return the functions that are in only one library or differ between both."""
    results = []
    bodies = [{f.signature.name: f for f in g.library.function} for g in (first, second)]
    for name in sorted({*bodies[0], *bodies[1]}):
        pair = [body.get(name) for body in bodies]
        if pair[0] is None or pair[1] is None:
            results.append({"function": name, "change": "added" if pair[0] is None else "removed"})
        elif _bytes(pair[0]) != _bytes(pair[1]):
            results.append({"function": name, "change": "changed"})
    return results


def summary(facts: Mapping[str, Any]) -> str:
    """Return the counts of differences, such as `1 node added, 2 changed, 1 function differs`."""
    kinds = [(kind, len(facts[kind])) for kind in ("added", "removed", "changed")]
    parts = [f"{count} {kind}" for kind, count in kinds if count]
    if parts:
        count, _, kind = parts[0].partition(" ")
        parts[0] = f"{count} {'node' if count == '1' else 'nodes'} {kind}"
    functions = len(facts["functions"])
    if functions:
        parts.append("1 function differs" if functions == 1 else f"{functions} functions differ")
    return ", ".join(parts)


def text(result: Any) -> Iterator[str]:
    """Return the text lines of a comparison of two opened models."""
    return lines(result.document(), result.first.graph, result.second.graph)


def lines(facts: Mapping[str, Any], first: Graph, second: Graph) -> Iterator[str]:
    """Yield a summary, then each difference: `-` only in the first graph, `+` in the second."""
    if facts["equal"]:
        yield f"Graphs are equal: {len(first)} nodes."
    else:
        yield f"Graphs differ: {summary(facts)}"
        yield from overview_lines(facts["summary"])
        yield ""
    yield from (f"- {first[name]}" for name in facts["removed"])
    yield from (f"+ {second[name]}" for name in facts["added"])
    for change in facts["changed"]:
        for what in ("op", "device"):
            if what in change:
                yield f"~ {change['node']}: {what}: {_arrow(change[what])}"
        if "inputs" in change:
            yield f"~ {change['node']}: inputs: {_arrow([', '.join(i) for i in change['inputs']])}"
        for name, pair in change.get("attributes", {}).items():
            yield f"~ {change['node']}: attribute {name}: {_arrow(pair)}"
    for function in facts["functions"]:
        yield f"~ function {function['function']}: {function['change']}"
    before, after = facts["producers"]
    if before != after:
        yield f"note: graph versions are not compared: producer {before} -> {after}"


def _arrow(pair: Sequence[str | None]) -> str:
    """Return two texts as a change; an absent or empty text is a dash."""
    return " -> ".join(item or "-" for item in pair)


def overview(first: Graph, second: Graph) -> dict[str, Any]:
    """Return the contents of two graphs as plain values; each pair is (first, second)."""
    ops = [Counter(node.op for node in graph) for graph in (first, second)]
    weights = [weights_in(graph) for graph in (first, second)]
    return {
        "nodes": [len(first), len(second)],
        "ops": {
            op: [count[op] for count in ops]
            for op in sorted({*ops[0], *ops[1]})
            if ops[0][op] != ops[1][op]
        },
        "weights": [values for values, _ in weights],
        "weight_bytes": [held for _, held in weights],
        "inputs": [[tensor_summary(graph, t) for t in graph.inputs] for graph in (first, second)],
        "outputs": [[tensor_summary(graph, t) for t in graph.outputs] for graph in (first, second)],
    }


def overview_lines(results: Mapping[str, Any]) -> Iterator[str]:
    """Yield an overview as four lines, then a line per input or output that differs."""
    yield f"nodes:     {_same_or_both(*results['nodes'])}"
    ops = (f"{op} {before} -> {after}" for op, (before, after) in results["ops"].items())
    yield f"ops:       {', '.join(ops) or 'the same counts'}"
    weights = [
        f"{count:,} values, {size(held)}"
        for count, held in zip(results["weights"], results["weight_bytes"], strict=True)
    ]
    yield f"weights:   {_same_or_both(*weights)}"
    yield from _signature(results)


def _signature(results: Mapping[str, Any]) -> Iterator[str]:
    lines = []
    for role in ("input", "output"):
        before, after = ([_tensor(item) for item in side] for side in results[f"{role}s"])
        lines += [f"- {role} {item}" for item in before if item not in after]
        lines += [f"+ {role} {item}" for item in after if item not in before]
    yield f"signature: {'differs' if lines else 'the same inputs and outputs'}"
    yield from (f"  {line}" for line in lines)


def _tensor(results: Mapping[str, Any]) -> str:
    return " ".join(filter(None, (results["name"], results["type"], shape_text(results["shape"]))))


def _same_or_both(before: Any, after: Any) -> str:
    return f"{before}, the same" if before == after else f"{before} -> {after}"
