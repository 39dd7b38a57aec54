"""Control inputs that order reads and writes of state: variables, tables, queues, files, stacks.

Order matters between two nodes that use state if one of them changes it. A control input also
matters if a change would not run without it. The analysis does not distinguish states: a control
input between two queues counts like one between two uses of the same queue.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from deploykit.transforms.ir.functions import Library, names_in
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name, split
from deploykit.transforms.ir.node_index import reached
from deploykit.transforms.ir.ops import op_defs, output_types
from deploykit.transforms.ir.protos import NodeDef
from deploykit.transforms.ir.stateful_ops import gives_reference, takes_handle
from deploykit.transforms.untrusted.side_effects import effect_of

# Ops that use state without changing it. Any other op with a handle may change the state.
_READS = re.compile(
    r"ReadVariableOp|ResourceGather(Nd)?|VarIsInitializedOp|VariableShape|IsVariableInitialized"
    r"|LookupTable(Find|Size|Export)(V2)?|Queue(Size|IsClosed)(V2)?|Barrier(Ready|Incomplete)Size"
    r"|\w*AccumulatorNumAccumulated|ReaderNum\w+|ReaderSerializeState(V2)?|IteratorToStringHandle"
    r"|SerializeIterator|((Ordered)?Map|Stage)(Size|Peek|IncompleteSize)|GetSessionTensor"
    r"|TensorArray(Read|Gather|Size|Concat|Pack)(V\d)?|ReadFile|MatchingFiles|Restore(Slice|V2)?"
    r"|(?!Save)\w+Dataset(V\d)?|ImmutableConst|LoadAndRemapMatrix|GenerateVocabRemapping"
    r"|FixedUnigramCandidateSampler|DecodeProtoV2|EncodeProto"
)
# These find their state by a string or a name instead of a handle.
_WITHOUT_HANDLE = re.compile(
    r"TensorArray(?!V?\d?$)\w+|Stage\w*|Unstage|(Ordered)?Map(Stage|Unstage\w*|Clear|Peek|\w*Size)"
    r"|(AddMany|Add|TakeMany)Sparse\w+TensorsMap|RecordInput"
    r"|(Get|Delete)Session(Handle|Tensor)(V2)?"
)
_ONE_RUN = re.compile(r"(TensorArray|Stack)\w*|DestroyTemporaryVariable")


@dataclass(frozen=True)
class _Use:
    """How a node uses state: it may change it, also for later runs of the graph."""

    is_change: bool
    is_lasting: bool


@dataclass(frozen=True)
class StateOrder:
    """The control inputs that state depends on, by node, and the nodes that use state."""

    control_inputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    uses: tuple[str, ...] = ()


def state_order(graph: Graph) -> StateOrder:
    """Return the control inputs without which uses of state would be reordered, or not run."""
    uses = dict(_uses(graph))
    if not uses:
        return StateOrder()
    changes = [name for name, use in uses.items() if use.is_change]
    after_use, after_change = graph.descendants(uses), graph.descendants(changes)
    before_use, before_change = graph.ancestors(uses), graph.ancestors(changes)
    retained: dict[str, set[str]] = {}
    for wait, name in _waits(graph):
        is_order = (wait in after_change and name in before_use) or (
            wait in after_use and name in before_change
        )
        if is_order:
            retained.setdefault(name, set()).add(wait)
    lost = _lost(graph, [name for name in changes if uses[name].is_lasting], retained)
    after_lost = graph.descendants(lost)
    for wait, name in _waits(graph):
        if wait in after_lost:
            retained.setdefault(name, set()).add(wait)
    before = graph.ancestors(name for waits in retained.values() for name in waits)
    ordered = before | graph.descendants(retained)
    return StateOrder(
        {
            name: tuple(i for i in graph[name].control_inputs if i[1:] in waits)
            for name, waits in retained.items()
        },
        tuple(name for name in uses if name in ordered),
    )


def _waits(graph: Graph) -> Iterator[tuple[str, str]]:
    """Yield the source and target of each control edge, unless the target reads the source too."""
    for node in graph:
        if node.control_inputs:
            read = set(map(producer_name, node.data_inputs))
            for control_input in node.control_inputs:
                if control_input[1:] not in read:
                    yield control_input[1:], node.name


def _lost(graph: Graph, changes: list[str], retained: dict[str, set[str]]) -> list[str]:
    """Return the changes that run only because an output waits for them; without outputs, all."""
    if not graph.outputs:
        return changes
    ends = [producer_name(tensor) for tensor in (*graph.outputs, *graph.inputs)]

    def needed(name: str) -> tuple[str, ...]:
        return (*map(producer_name, graph[name].data_inputs), *retained.get(name, ()))

    result = reached(ends, needed)
    ran = graph.ancestors(ends)
    return [name for name in changes if name in ran and name not in result]


def _uses(graph: Graph) -> Iterator[tuple[str, _Use]]:
    library = Library(graph)
    in_functions = {
        kind: library.reaching(functools.partial(_is, kind))
        for kind in ("is_use", "is_change", "is_lasting")
        if library.functions
    }
    for node in graph:
        if graph.is_input(node.name):
            continue
        named = {*names_in(node.attrs.values()), node.op}
        if any(not named.isdisjoint(functions) for functions in in_functions.values()):
            is_change, is_lasting = (
                not named.isdisjoint(in_functions[kind]) for kind in ("is_change", "is_lasting")
            )
            yield node.name, _Use(is_change, is_lasting)
        elif (use := _use(node)) or (use := _use_of_inputs(graph, node, library)):
            yield node.name, use


def _is(kind: str, node: NodeDef) -> bool:
    """Return whether a node of a function uses state (`is_use`), or a field of its `_Use`."""
    use = _use(node)
    return use is not None and (kind == "is_use" or bool(getattr(use, kind)))


def _use(node: Node | NodeDef) -> _Use | None:
    """Return how a node uses state, as far as its op determines it."""
    op = node.op
    attrs = node.attrs if isinstance(node, Node) else node.attr
    has_contents = takes_handle(op) or _WITHOUT_HANDLE.fullmatch(op)
    if not has_contents and effect_of(op, attrs) is None:
        return None
    if op.startswith("Ref") and takes_handle(op):
        return None  # it passes the variable on
    is_change = not _READS.fullmatch(op)
    return _Use(is_change, is_change and not _ONE_RUN.fullmatch(op))


def _use_of_inputs(graph: Graph, node: Node, library: Library) -> _Use | None:
    """Return how a node uses its handles if its op is unknown, or if it reads a variable."""
    is_read = False
    for tensor in node.data_inputs:
        producer, port = graph.producer(tensor), split(tensor)[1]
        if gives_reference(producer.op):
            is_read = True  # of a variable of TensorFlow 1
        elif node.op not in op_defs() and node.op not in library.functions:
            types = output_types(producer) if producer.op in op_defs() else None
            if types and port < len(types) and types[port] == "resource":
                return _Use(True, True)
    return _Use(False, False) if is_read and not node.op.startswith("Ref") else None
