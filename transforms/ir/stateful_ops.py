"""State that ops keep from run to run: each stateful op is filled, refused or has no contents.

A frozen graph is one file that must contain all state: freezing turns variables into constants
and fills tables from constants. Ops with any other state would be empty, so they are refused.
"""

import functools
import re
from typing import Literal

from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import VARIABLE_OPS, op_defs
from deploykit.transforms.ir.tensors import type_number
from deploykit.transforms.untrusted.side_effects import SIDE_EFFECTS

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
    if not is_known and not _gives_handle(op):
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
    resource, op_def = type_number("resource"), op_defs().get(op)
    return op_def is not None and any(a.is_ref or a.type == resource for a in op_def.input_arg)


def gives_reference(op: str) -> bool:
    """Return whether an op returns a variable of TensorFlow 1, or another reference."""
    op_def = op_defs().get(op)
    return op_def is not None and any(arg.is_ref for arg in op_def.output_arg)


def _gives_handle(op: str) -> bool:
    resource = type_number("resource")
    return any(arg.is_ref or arg.type == resource for arg in op_defs()[op].output_arg)
