"""Side effects of running a graph: on files, the network, Python or the process."""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from deploykit.transforms.common.errors import RefusedError
from deploykit.transforms.ir.functions import reachable
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import normal, producer_name, split
from deploykit.transforms.ir.node_index import reached
from deploykit.transforms.ir.ops import PLACEHOLDER_OPS
from deploykit.transforms.ir.protos import AttrValue

WAITS = "waits for another thread or run, and may hang the process"
"""Effect of queues, staging areas and readers, which training graphs contain."""

# Ops with side effects, and what they do. The registry does not have this information: it marks
# ReadFile, MatchingFiles, ImmutableConst, DebugIdentity and Abort as stateless.
SIDE_EFFECTS = {
    "reads or writes files": """
        CSVDataset CSVDatasetV2 CacheDataset CacheDatasetV2 CalibrationStatisticsSaver
        CreateSummaryDbWriter CreateSummaryFileWriter DTensorRestoreV2 DatasetToTFRecord
        DecodeProtoV2 DistributedSave DumpTensor EncodeProto ExperimentalCSVDataset
        ExperimentalDatasetToTFRecord ExperimentalLMDBDataset ExperimentalMatchingFilesDataset
        ExperimentalSqlDataset FileSystemSetConfiguration FixedLengthRecordDataset
        FixedLengthRecordDatasetV2 FixedLengthRecordReader FixedLengthRecordReaderV2
        GenerateVocabRemapping ImmutableConst ImportEvent InitializeTableFromTextFile
        InitializeTableFromTextFileV2 InitializeTRTResource LMDBDataset LMDBReader
        ListSnapshotChunksDataset LoadAndRemapMatrix LoadDataset MatchingFiles
        MatchingFilesDataset MergeV2Checkpoints ReadFile RecordInput Restore RestoreSlice
        RestoreV2 Save SaveDataset SaveDatasetV2 SaveSlices SaveV2 SerializeTRTResource
        Skipgram SnapshotChunkDataset SnapshotDataset SnapshotDatasetReader SnapshotDatasetV2
        SnapshotNestedDatasetReader SqlDataset StatsAggregatorSetSummaryWriter TFRecordDataset
        TFRecordDatasetV2 TFRecordReader TFRecordReaderV2 TextLineDataset TextLineReader
        TextLineReaderV2 WholeFileReader WholeFileReaderV2 WriteAudioSummary WriteFile
        WriteGraphSummary WriteHistogramSummary WriteImageSummary WriteRawProtoSummary
        WriteScalarSummary WriteSummary
        """,
    "sends what it reads to a file or over the network": """
        DebugIdentity DebugIdentityV2 DebugIdentityV3 DebugNanCount DebugNumericSummary
        DebugNumericSummaryV2
        """,
    "runs Python code": "EagerPyFunc PyFunc PyFuncStateless _InternalPyFunc",
    "runs code that no one has checked": """
        DatasetFromGraph TRTEngineOp XlaCallModule XlaCustomCall XlaCustomCallV2 _TPUCompileMlir
        """,
    "ends or hangs the process": """
        Abort AllToAll CollectiveAllToAllV2 CollectiveAllToAllV3 CollectiveBcastRecv
        CollectiveBcastRecvV2 CollectiveBcastSend CollectiveBcastSendV2 CollectiveGather
        CollectiveGatherV2 CollectiveInitializeCommunicator CollectivePermute CollectiveReduce
        CollectiveReduceScatterV2 CollectiveReduceV2 CollectiveReduceV3
        ConfigureAndInitializeGlobalTPU ConfigureDistributedTPU ConnectTPUEmbeddingHosts
        CrossReplicaSum DTensorAllGather DTensorAllReduce DTensorAllScatter DTensorAllToAll
        DTensorReduceScatter DynamicEnqueueTPUEmbeddingArbitraryTensorBatch
        DynamicEnqueueTPUEmbeddingRaggedTensorBatch EnqueueTPUEmbeddingArbitraryTensorBatch
        EnqueueTPUEmbeddingBatch EnqueueTPUEmbeddingIntegerBatch
        EnqueueTPUEmbeddingRaggedTensorBatch EnqueueTPUEmbeddingSparseBatch
        EnqueueTPUEmbeddingSparseTensorBatch InfeedDequeue InfeedDequeueTuple InfeedEnqueue
        InfeedEnqueuePrelinearizedBuffer InfeedEnqueueTuple NcclAllReduce NcclBroadcast NcclReduce
        OutfeedDequeue OutfeedDequeueTuple OutfeedDequeueTupleV2 OutfeedDequeueV2 OutfeedEnqueue
        OutfeedEnqueueTuple Recv RecvTPUEmbeddingActivations Send SendTPUEmbeddingGradients
        ShutdownDistributedTPU ShutdownTPUSystem WorkerHeartbeat XlaAllReduce XlaHostCompute XlaRecv
        XlaRecvFromHost XlaRecvTPUEmbeddingActivations XlaRecvTPUEmbeddingActivationsV2
        XlaRecvTPUEmbeddingDeduplicationData XlaRecvTPUEmbeddingDeduplicationDataV2 XlaReduceScatter
        XlaSend XlaSendTPUEmbeddingGradients XlaSendTPUEmbeddingGradientsV2 XlaSendToHost
        _ConfigureDistributedTPU _DisconnectHostFromDistributedTPUSystem _HostRecv _HostSend
        _InitializeHostForDistributedTPU _NcclBroadcastRecv _NcclBroadcastSend _NcclReduceRecv
        _NcclReduceSend _Recv _Send _ShutdownDistributedTPU _WaitForDistributedTPU
        _XlaHostComputeMlir _XlaRecvAtHost _XlaRecvAtHostV2 _XlaSendFromHost _XlaSendFromHostV2
        """,
    WAITS: """
        AccumulatorTakeGradient BarrierTakeMany ExperimentalSleepDataset MapPeek MapStage MapUnstage
        MapUnstageNoKey OrderedMapPeek OrderedMapStage OrderedMapUnstage OrderedMapUnstageNoKey
        QueueDequeue QueueDequeueMany QueueDequeueManyV2 QueueDequeueUpTo QueueDequeueUpToV2
        QueueDequeueV2 QueueEnqueue QueueEnqueueMany QueueEnqueueManyV2 QueueEnqueueV2 ReaderRead
        ReaderReadUpTo ReaderReadUpToV2 ReaderReadV2 ResourceAccumulatorTakeGradient SleepDataset
        SleepIdentityOp SleepOp SparseAccumulatorTakeGradient Stage StagePeek Unstage
        """,
    "opens network connections": """
        DataServiceDataset DataServiceDatasetV2 DataServiceDatasetV3 DataServiceDatasetV4
        RegisterDataset RegisterDatasetV2 RemoteCall RpcCall RpcCheckStatus RpcClient
        RpcGetValue RpcServer RpcServerRegister RpcServerStart
        """,
}
_EFFECT_OF_OP = {op: effect for effect, ops in SIDE_EFFECTS.items() for op in ops.split()}


# A model reads its vocabularies and variables; a training graph also contains ops that write and
# read its checkpoints.
READING_FILES = ("InitializeTableFromTextFile", "InitializeTableFromTextFileV2")
RESTORING_OPS = ("Restore", "RestoreSlice", "RestoreV2")
READING_OPS = (*READING_FILES, *RESTORING_OPS)
SAVING_OPS = ("MergeV2Checkpoints", "Save", "SaveSlices", "SaveV2")
CHECKPOINT_OPS = (*SAVING_OPS, *RESTORING_OPS)


@dataclass(frozen=True)
class Effect:
    """A node with side effects outside of the graph."""

    where: str
    """The node, and its function if it is in one."""
    op: str
    does: str
    tensors: tuple[str, ...] = ()
    """The tensors to feed instead of it and of other waiting nodes, with the graph's inputs."""

    def __str__(self) -> str:
        """Return the effect and the node as text."""
        return f"{self.where}: {self.op} {self.does} when it runs"


def effects_in(graph: Graph) -> list[Effect]:
    """Return all nodes with side effects of a graph, and those of functions that it calls.

    They count even if no output needs them, as a copy of the graph contains them. Ops of training
    graphs that save and restore variables or wait for input count only where they run.
    """
    effects = list(_effects(graph))
    run = _needed(graph) if effects and graph.outputs else None

    def counts(name: str | None, effect: Effect) -> bool:
        is_of_training = effect.does == WAITS or effect.op in CHECKPOINT_OPS
        return not is_of_training or run is None or name is None or name in run

    return _with_a_cut(graph, [item for item in effects if counts(*item)])


def effect_of(op: str, attrs: Mapping[str, AttrValue]) -> str | None:
    """Return the side effect of a node as text; None: it has none."""
    if op == "PrintV2" and "output_stream" in attrs and attrs["output_stream"].s[:5] == b"file:":
        return "writes a file"
    if op == "FixedUnigramCandidateSampler" and "vocab_file" in attrs and attrs["vocab_file"].s:
        return "reads a file"
    return _EFFECT_OF_OP.get(op)


def refuse_side_effects(graph: Graph, allowed: Iterable[str] = ()) -> None:
    """Raise RefusedError if running the graph's outputs would have side effects.

    `allowed` are permitted ops. Nodes and functions that no output needs do not count.
    """
    if any(_effects(graph)):
        refuse(_with_a_cut(graph, list(_effects(run_part(graph)))), allowed)


def refuse(effects: Iterable[Effect], allowed: Iterable[str] = ()) -> None:
    """Raise RefusedError for the first effect whose op is not allowed."""
    allowed = frozenset(allowed)
    for effect in effects:
        if effect.op not in allowed:
            cut = f"feed the model with {cut_off(effect.tensors)}, or " * (effect.does == WAITS)
            raise RefusedError("acts-beyond", what=effect, cut=cut, op=effect.op)


def cut_off(tensors: Iterable[str]) -> str:
    """Return the option that feeds these tensors; without tensors, a general hint."""
    return f"--inputs {','.join(tensors) or 'after it'}"


def inputs_behind(graph: Graph, sources: Container[str]) -> tuple[str, ...]:
    """Return the tensors to feed so that the outputs need none of these nodes, inputs first.

    A PlaceholderWithDefault is fed itself. The result is empty if feeding tensors cannot cut off a
    node, as with a control input from it.
    """
    fed = set(graph.inputs)
    names: set[str] = set()
    seen: set[str] = set()
    waiting = list(graph.outputs)
    while waiting:
        tensor = normal(waiting.pop())
        name, is_wait = producer_name(tensor), tensor[:1] == "^"
        if is_wait and name in sources:  # no fed tensor can cut this off
            return ()
        if tensor in fed or (name in sources and not is_wait):
            names.add(tensor)
        elif name in graph and name not in seen and name not in sources:
            seen.add(name)
            read = graph[name].inputs
            is_switch = graph[name].op == "PlaceholderWithDefault"
            if is_switch and producer_name(read[0]) in sources:
                names.add(name)
            else:
                waiting += read
    behind = sorted(names - fed)
    if not behind or not names.isdisjoint({*graph.outputs} - fed):
        return ()
    return (*(tensor for tensor in graph.inputs if tensor in names), *behind)


def may_act(op: str) -> bool:
    """Return whether a node of this op can have side effects."""
    return op in _EFFECT_OF_OP or op in ("PrintV2", "FixedUnigramCandidateSampler")


def run_part(graph: Graph) -> Graph:
    """Return the part of a graph that runs for its outputs; without outputs, all of it."""
    if not graph.outputs:
        return graph
    needed = _needed(graph)
    return Graph([node for node in graph if node.name in needed], library=graph.library)


def _needed(graph: Graph) -> set[str]:
    """Return the nodes that run for the outputs, without nodes that only fed tensors need."""
    fed = set(map(split, graph.inputs))
    # TensorFlow runs any other fed node if a control input waits for it.
    fed |= {(name, -1) for name, _ in fed if name in graph and graph[name].op in PLACEHOLDER_OPS}

    def runs(end: tuple[str, int]) -> bool:
        return end not in fed and end[0] in graph

    ends = reached(
        map(split, graph.outputs),
        lambda end: map(split, graph[end[0]].inputs) if runs(end) else (),
    )
    return {end[0] for end in ends if runs(end)}


def _effects(graph: Graph) -> Iterator[tuple[str | None, Effect]]:
    """Yield the effects of a graph with the names of their nodes, or None in a function."""
    acting = {op for op in graph.ops if may_act(op)}
    for node in graph if acting else ():
        if node.op in acting and (does := effect_of(node.op, node.attrs)) is not None:
            yield node.name, Effect(f"node '{node.name}'", node.op, does)
    used = reachable(graph) if graph.library.function else ()
    for function in graph.library.function:
        if function.signature.name in used:
            for body_node in function.node_def:
                if (does := effect_of(body_node.op, body_node.attr)) is not None:
                    where = f"function '{function.signature.name}', node '{body_node.name}'"
                    yield None, Effect(where, body_node.op, does)


def _with_a_cut(graph: Graph, names: list[tuple[str | None, Effect]]) -> list[Effect]:
    """Return effects; waiting ones get the tensors to feed instead of all of them."""
    waits = {name for name, effect in names if effect.does == WAITS and name is not None}
    tensors = inputs_behind(graph, waits) if waits else ()
    return [replace(effect, tensors=tensors) if name in waits else effect for name, effect in names]
