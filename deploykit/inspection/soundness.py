"""Checks the bytes of a model, before anything runs, for errors and for effects of its nodes."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from deploykit.importers.initializers import init_ops
from deploykit.importers.meta_graphs import meta_graph_nodes, signature_tensors, tags_of
from deploykit.rendering.templates import size
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.functions import reachable
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name
from deploykit.transforms.ir.ops import VARIABLE_OPS
from deploykit.transforms.ir.protos import MetaGraphDef
from deploykit.transforms.runtime.importing import ImportCheck, light_form, without_values
from deploykit.transforms.untrusted.side_effects import (
    CHECKPOINT_OPS,
    READING_OPS,
    SAVING_OPS,
    WAITS,
    Effect,
    effect_of,
    effects_in,
)
from deploykit.transforms.untrusted.validate import GraphParts, check_ends, survey
from deploykit.transforms.untrusted.wire import decoded

_LISTED = 1000  # ops, and nodes of each


@dataclass(frozen=True)
class OpUse:
    """An op, and its nodes in a graph and in the graph's functions (`function/node`)."""

    op: str
    count: int
    """Number of nodes."""
    nodes: tuple[str, ...]
    """Names of the first 1000 nodes."""
    effect: str = ""
    """The effect of the op beyond the graph."""
    allowed: bool = False


@dataclass
class GraphMetadata:
    """Contents of one graph of a model; of an unsound graph, the part that could be read."""

    tags: tuple[str, ...] = ()
    bytes: int = 0
    nodes: int = 0
    functions: int = 0
    function_nodes: int = 0
    call_depth: int = 0
    """Maximum depth of nested function calls."""
    expanded_nodes: int = 0
    """Number of nodes with all function calls inlined."""
    variables: int = 0
    largest_constant: str | None = None
    largest_constant_bytes: int = 0
    custom_ops: list[OpUse] = field(default_factory=list)
    unlisted_nodes: int = 0
    """Number of nodes of custom ops beyond those in `custom_ops`."""
    effects: list[OpUse] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    """Problems of nodes that no output needs."""

    def __post_init__(self) -> None:
        """Start without tensors to feed, which the document does not list."""
        self.feed: tuple[str, ...] = ()  # instead of the ops that wait

    def check_custom_ops(self, are_needed: bool) -> None:
        """Add custom ops to the problems, or to the warnings if no output needs them."""
        results = [_unknown(use) for use in self.custom_ops]
        if self.unlisted_nodes:
            results.append(f"{self.unlisted_nodes} nodes of further custom ops are not listed")
        if are_needed:
            self.problems += results
        else:
            self.warnings += [f"{result}; no output needs it" for result in results]


class _Survey:
    """Collects metadata of the nodes that it is called with."""

    def __init__(self, facts: GraphMetadata) -> None:
        self._facts = facts
        self._functions: set[str] = set()
        self.nodes: list[Node] = []  # those of the graph, for TensorFlow's importer
        self.custom: dict[str, list[str]] = {}
        self.effects: dict[tuple[str, str], list[tuple[str, str]]] = {}

    def __call__(self, function: str, node: Node, is_known: bool) -> None:
        facts = self._facts
        if function:
            facts.function_nodes += 1
            self._functions.add(function)
            facts.functions = len(self._functions)
        else:
            facts.nodes += 1
            self.nodes.append(without_values(node))
        name = f"{function}/{node.name}" if function else node.name
        facts.variables += node.op in VARIABLE_OPS
        if not is_known and (node.op in self.custom or len(self.custom) < _LISTED):
            self.custom.setdefault(node.op, []).append(name)
        elif not is_known:
            facts.unlisted_nodes += 1
        if effect := effect_of(node.op, node.attrs):
            self.effects.setdefault((node.op, effect), []).append((function, node.name))
        if node.op == "Const" and node.attrs["value"].ByteSize() > facts.largest_constant_bytes:
            facts.largest_constant = name
            facts.largest_constant_bytes = node.attrs["value"].ByteSize()


def meta_graph_metadata(
    content: bytes, tensorflow: ImportCheck, allow_ops: Collection[str]
) -> GraphMetadata:
    """Return the contents of a MetaGraphDef like `graph_metadata`; its saver is ignored."""
    return graph_metadata(meta_graph_nodes(content), tensorflow, allow_ops, content)


def graph_metadata(
    graph_def: bytes,
    tensorflow: ImportCheck,
    allow_ops: Collection[str],
    meta: bytes | None = None,
    answering: Callable[[], Graph] | None = None,
) -> GraphMetadata:
    """Return the contents of the bytes of a GraphDef, which may be that of a MetaGraphDef.

    Custom ops are listed, but not yet reported as problems or warnings.
    LimitError: TensorFlow took more time or memory than allowed.

    `answering` returns the graph of a bare GraphDef with its inputs and outputs; queues and savers
    that no output needs are not listed.
    """
    facts = GraphMetadata(bytes=len(graph_def))
    seen = _Survey(facts)
    try:
        if meta is not None:
            facts.tags = tuple(tags_of(meta))
        parts = GraphParts.read(graph_def)
        expansion = survey(parts, seen)
        facts.call_depth, facts.expanded_nodes = expansion.depth, expansion.nodes
        excused = _excused(meta, answering if seen.effects else None)
        if not seen.custom:  # TensorFlow would name the first one, and no more
            tensorflow.check(light_form(replace(parts, nodes=lambda: iter(seen.nodes))))
    except GraphError as error:
        facts.problems.append(str(error))
        excused = None
    facts.custom_ops = [
        OpUse(op, len(names), tuple(names[:_LISTED])) for op, names in sorted(seen.custom.items())
    ]
    facts.feed = excused.feed if excused is not None else ()
    for (op, effect), places in sorted(seen.effects.items()):
        left = [
            place
            for place in places
            if excused is None or not excused.is_harmless(op, effect, *place)
        ]
        if left:
            names = tuple(f"{function}/{name}" if function else name for function, name in left)
            allowed = op in allow_ops
            facts.effects.append(OpUse(op, len(names), names[:_LISTED], effect, allowed))
    return facts


def _unknown(use: OpUse) -> str:
    more = f" and {use.count - 1} more" if use.count > 1 else ""
    return f"node '{use.nodes[0]}'{more}: {use.op} is a custom op, not a TensorFlow op"


def _excused(
    meta: bytes | None, answering: Callable[[], Graph] | None
) -> "_Excused | _UnusedEffects | None":
    if meta is not None:
        return _Excused(decoded(meta, MetaGraphDef))
    if answering is not None:
        with contextlib.suppress(GraphError):  # the caller reports what is not sound
            return _UnusedEffects(effects_in(answering()))
    return None


class _UnusedEffects:
    """Separates the queues and savers of a GraphDef that its outputs need from the others."""

    def __init__(self, effects: list[Effect]) -> None:
        self._running = {(effect.op, effect.where) for effect in effects}
        self.feed = next((effect.tensors for effect in effects if effect.tensors), ())

    def is_harmless(self, op: str, effect: str, function: str, name: str) -> bool:
        """Return whether a node waits, saves or restores and no output needs it."""
        if function or not (op in CHECKPOINT_OPS or effect == WAITS):
            return False
        return (op, f"node '{name}'") not in self._running


class _Excused:
    """Separates nodes for training and the model's variables from nodes with other effects.

    GraphError: a signature or an init op names a tensor that does not exist.
    """

    def __init__(self, meta: MetaGraphDef) -> None:
        live = Graph.from_graph_def(meta.graph_def)
        expected = [*signature_tensors(meta), *init_ops(meta)]
        for tensor in expected:
            if producer_name(tensor) not in live:
                raise GraphError("signature-node-missing", tensor=tensor)
        called = set(meta.object_graph_def.concrete_functions)
        live.outputs = tuple(dict.fromkeys(expected))
        check_ends(live)
        live.prune()
        self._functions = reachable(live) | called
        self._nodes = {node.name for node in live}
        self.feed: tuple[str, ...] = ()

    def is_harmless(self, op: str, effect: str, function: str, name: str) -> bool:
        """Return whether a node reads the model's files, or no signature or init op runs it."""
        if op in SAVING_OPS or effect == WAITS:
            return function not in self._functions if function else name not in self._nodes
        return op in READING_OPS


def lines(result: Any) -> Iterator[str]:
    """Yield the result of a check as text."""
    document, nodes = result.document(), sum(g.nodes + g.function_nodes for g in result.graphs)
    yield f"{result.source}: {size(result.bytes)}, {nodes:,} nodes"
    for graph in document["graphs"]:
        yield from _graph_lines(graph)
    verdict = "sound" if document["sound"] else "not sound"
    refused = document["refused_ops"]
    yield f"verdict:    {verdict}{', but it acts beyond its graph' if refused else ''}"


def _graph_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    if facts["tags"]:
        yield f"tags:       {', '.join(facts['tags'])}"
    yield f"nodes:      {facts['nodes']:,}"
    if facts["functions"]:
        yield (
            f"functions:  {facts['functions']} of {facts['function_nodes']:,} nodes; calls up to "
            f"{facts['call_depth']} deep, {facts['expanded_nodes']:,} nodes with all calls inlined"
        )
    if facts["largest_constant"] is not None:
        largest = size(facts["largest_constant_bytes"])
        yield f"constants:  the largest is '{facts['largest_constant']}' with {largest}"
    for use in facts["custom_ops"]:
        yield f"custom op:  {_used(use)}"
    for use in facts["effects"]:
        allowed = " (allowed)" if use["allowed"] else ""
        yield f"effect:     {_used(use)} {use['effect']}{allowed}"
    for problem in facts["problems"]:
        yield f"problem:    {problem}"
    for warning in facts["warnings"]:
        yield f"warning:    {warning}"


def _used(use: Mapping[str, Any]) -> str:
    more = f" and {use['count'] - 3} more" if use["count"] > 3 else ""
    return f"{use['op']} ({', '.join(use['nodes'][:3])}{more})"
