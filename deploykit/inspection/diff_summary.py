"""How two graphs differ at a glance: nodes, ops by count, weights, inputs and outputs."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from deploykit.inspection.summary import shape_text, tensor_facts, weights_in
from deploykit.text.templates import size
from deploykit.transforms.core.graph import Graph


def overview(first: Graph, second: Graph) -> dict[str, Any]:
    """Return what two graphs hold as plain values; each pair is (in the first, in the second)."""
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
        "inputs": [[tensor_facts(graph, t) for t in graph.inputs] for graph in (first, second)],
        "outputs": [[tensor_facts(graph, t) for t in graph.outputs] for graph in (first, second)],
    }


def overview_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield it as four lines, and a line for each input or output that only one graph has."""
    yield f"nodes:     {_pair(*found['nodes'])}"
    ops = (f"{op} {before} -> {after}" for op, (before, after) in found["ops"].items())
    yield f"ops:       {', '.join(ops) or 'the same, as often'}"
    weights = [
        f"{count:,} values, {size(held)}"
        for count, held in zip(found["weights"], found["weight_bytes"], strict=True)
    ]
    yield f"weights:   {_pair(*weights)}"
    yield from _signature(found)


def _signature(found: Mapping[str, Any]) -> Iterator[str]:
    lines = []
    for role in ("input", "output"):
        before, after = ([_tensor(each) for each in side] for side in found[f"{role}s"])
        lines += [f"- {role} {each}" for each in before if each not in after]
        lines += [f"+ {role} {each}" for each in after if each not in before]
    yield f"signature: {'differs' if lines else 'the same inputs and outputs'}"
    yield from (f"  {line}" for line in lines)


def _tensor(found: Mapping[str, Any]) -> str:
    return " ".join(filter(None, (found["name"], found["type"], shape_text(found["shape"]))))


def _pair(before: Any, after: Any) -> str:
    return f"{before}, the same" if before == after else f"{before} -> {after}"
