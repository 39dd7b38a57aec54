"""State that ops keep from run to run, and control inputs that order reads and writes of it.

A frozen graph is one file that must contain all state: freezing turns variables into constants
and fills tables from constants. Ops with any other state would be empty, so they are refused.

The order matters between two nodes that use state (variables, tables, queues, files, stacks) if
one of them changes it. A control input also matters if a change would not run without it. The
analysis does not distinguish states: a control input between two queues counts like one between
two uses of the same queue.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from deploykit.transforms.ir.functions import Library, names_in
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name, split
from deploykit.transforms.ir.node_index import reached
from deploykit.transforms.ir.ops import VARIABLE_OPS, op_defs, output_types
from deploykit.transforms.ir.protos import NodeDef, OpDef
from deploykit.transforms.ir.tensors import type_number
from deploykit.transforms.untrusted.side_effects import SIDE_EFFECTS, effect_of

_TABLES = """
    AnonymousHashTable AnonymousMutableDenseHashTable AnonymousMutableHashTable
    AnonymousMutableHashTableOfTensors HashTable HashTableV2 MutableDenseHashTable
    MutableDenseHashTableV2 MutableHashTable MutableHashTableOfTensors MutableHashTableOfTensorsV2
    MutableHashTableV2
    """
TABLE_OPS = frozenset(_TABLES.split())
FILLED_OPS = VARIABLE_OPS | TABLE_OPS

# Other ops with state that no model file contains, by the kind of state.
REFUSED = {
    "the elements of a queue": """
        Barrier FIFOQueue FIFOQueueV2 FakeQueue PaddingFIFOQueue PaddingFIFOQueueV2 PriorityQueue
        PriorityQueueV2 RandomShuffleQueue RandomShuffleQueueV2
        """,
    "the position of a reader": """
        AnonymousIterator AnonymousIteratorV2 AnonymousIteratorV3 AnonymousMultiDeviceIterator
        AnonymousMultiDeviceIteratorV3 FixedLengthRecordReader FixedLengthRecordReaderV2
        IdentityReader IdentityReaderV2 Iterator IteratorFromStringHandle IteratorFromStringHandleV2
        IteratorV2 LMDBReader MultiDeviceIterator MultiDeviceIteratorFromStringHandle RecordInput
        TFRecordReader TFRecordReaderV2 TextLineReader TextLineReaderV2 WholeFileReader
        WholeFileReaderV2
        """,
    "accumulated gradients": """
        ConditionalAccumulator ResourceConditionalAccumulator SparseConditionalAccumulator
        """,
    "tensors stored by another run": """
        AddManySparseToTensorsMap AddSparseToTensorsMap DeleteSessionTensor GetSessionHandle
        GetSessionHandleV2 GetSessionTensor MapClear MapIncompleteSize MapPeek MapSize MapStage
        MapUnstage MapUnstageNoKey OrderedMapClear OrderedMapIncompleteSize OrderedMapPeek
        OrderedMapSize OrderedMapStage OrderedMapUnstage OrderedMapUnstageNoKey Stage StageClear
        StagePeek StageSize TakeManySparseFromTensorsMap Unstage
        """,
    "trees": """
        BoostedTreesEnsembleResourceHandleOp BoostedTreesQuantileStreamResourceHandleOp
        """,
    "variables in a form that no model file supports": """
        StubResourceHandleOp _VarHandlesOp _XlaAotOnlyVarHandleOp
        """,
    "a connection or a group of processes": """
        CollectiveAssignGroupV2 CollectiveInitializeCommunicator RpcClient RpcServer
        """,
}
_HELD_BY_REFUSED = {op: held for held, ops in REFUSED.items() for op in ops.split()}

# State of these ops is used up in the run that creates it; a one-shot iterator has its dataset.
_FOR_ONE_RUN = """
    AnonymousMemoryCache AnonymousRandomSeedGenerator AnonymousSeedGenerator DummyIterationCounter
    DummyMemoryCache DummySeedGenerator ExperimentalStatsAggregatorHandle
    ExperimentalThreadPoolHandle MakeWeakResourceHandle MutexV2 OneShotIterator Stack StackV2
    StatsAggregatorHandle StatsAggregatorHandleV2 SummaryWriter TemporaryVariable TensorArray
    TensorArrayGrad TensorArrayGradV2 TensorArrayV2 TensorArrayV3 ThreadPoolHandle
    """
# The registry calls these stateful, but they return no handle to state: they draw random numbers,
# pass values on, have effects, or compile.
_WITHOUT_CONTENTS = re.compile(
    r"""(?x)
    Empty | MakeIterator | _ParallelConcatStart | _ScopedAllocator\w* | \w*Dataset\w*
    # random numbers
    | Multinomial | NonDeterministicInts | Parameterized\w+ | Random\w+ | SampleDistorted\w+
    | Skipgram | TruncatedNormal | \w+CandidateSampler | StatelessRandomGetAlg | XlaSparseCore\w+
    # calls and ops that pass values on
    | _?(If|While) | Case | RiscWhile | Xla(If|While|Launch|HostCompute) | StatefulPartitionedCall
    | CheckNumerics(V2)? | GuaranteeConst | DeepCopy | _?(Device)?(Arg|Retval) | _Device(Arg|Retval)
    | DtypeWithDefaultOp | XlaDequantize | CudnnRNN\w* | TestAttr | DevicePlacementOp
    # effects and queries of the process
    | Assert | Print(V2)? | Timestamp | Sleep\w* | DeviceIndex | SyncDevice | GraphDefVersion
    | RequiresOlderGraphVersion | IsTensorFloat32Enabled | GlobalIterId | ConsumeMutexLock
    | DeleteRandomSeedGenerator | AllToAll | CrossReplicaSum | Collective\w+ | _?Nccl\w+
    | _?Xla\w*(Send|Recv)\w* | _Xla\w+ | ConvertToCooTensor | GetMinibatch\w+
    # of other processors
    | \w*TPU\w* | Infeed\w+ | Outfeed\w+ | ComputeDedupData\w+ | UpdateTaskId\w+
    | StoreMinibatch\w+
    """
)
_EFFECTS = frozenset(op for ops in SIDE_EFFECTS.values() for op in ops.split())

# Ops that change the contents of a variable or a table, which is their first input.
_UPDATES = re.compile(
    r"Assign(Add|Sub)?(VariableOp)?|(Resource)?(Sparse)?Apply\w+|(Resource)?Scatter\w+"
    r"|(Resource)?StridedSliceAssign|(Resource)?CountUpTo|Rng(ReadAndSkip|Skip)"
    r"|Stateful(RandomBinomial|StandardNormal(V2)?|TruncatedNormal|Uniform\w*)"
    r"|LookupTable(Insert(V2)?|RemoveV2)"
)

UNTOUCHED_READS = frozenset({"IsVariableInitialized", "VarIsInitializedOp", "VariableShape"})
"""Ops that query a variable, but not its value."""
_PASSING_OPS = frozenset({"Enter", "Exit", "Identity", "Merge", "NextIteration", "Switch"})

Contents = Literal["filled", "refused", "nothing"]


@functools.cache
def contents_of(op: str) -> Contents | None:
    """Return how freezing handles the state of an op, or None if that is not specified."""
    if op in FILLED_OPS:
        return "filled"
    if op in _HELD_BY_REFUSED:
        return "refused"
    op_def = op_defs().get(op)
    if op_def is None or not op_def.is_stateful:
        return "nothing"
    is_known = op in _FOR_ONE_RUN.split() or op in _EFFECTS or takes_handle(op)
    if not is_known and not any(map(_is_handle, op_def.output_arg)):
        is_known = _WITHOUT_CONTENTS.fullmatch(op) is not None
    return "nothing" if is_known else None


def state_held_by(op: str) -> str:
    """Return the kind of state of a refused op."""
    return _HELD_BY_REFUSED[op]


@functools.cache
def is_update(op: str) -> bool:
    """Return whether an op changes the contents of the variable or table that it takes."""
    return _UPDATES.fullmatch(op) is not None and takes_handle(op)


def passed_ports(node: Node, port: int) -> list[int]:
    """Return the outputs at which a node passes on the variable or table of an input port."""
    op = node.op.removeprefix("Ref")
    if op == "IdentityN":
        return [port]
    if op not in _PASSING_OPS or (port and op != "Merge"):
        return []
    return [0, 1] if op == "Switch" else [0]


def takes_handle(op: str) -> bool:
    """Return whether an op takes a variable, table or other resource that another op creates."""
    op_def = op_defs().get(op)
    return op_def is not None and any(map(_is_handle, op_def.input_arg))


def gives_reference(op: str) -> bool:
    """Return whether an op returns a variable of TensorFlow 1, or another reference."""
    op_def = op_defs().get(op)
    return op_def is not None and any(arg.is_ref for arg in op_def.output_arg)


def _is_handle(arg: OpDef.ArgDef) -> bool:
    return bool(arg.is_ref or arg.type == type_number("resource"))


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
            types = output_types(producer)
            if types and port < len(types) and types[port] == "resource":
                return _Use(True, True)
    return _Use(False, False) if is_read and not node.op.startswith("Ref") else None
