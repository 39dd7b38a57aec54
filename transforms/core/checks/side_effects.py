"""Whether running a graph reaches beyond it: to files, the network, Python or the process."""

from collections.abc import Iterable, Mapping

from deploykit.transforms.core.errors import RefusedError
from deploykit.transforms.core.functions import reachable
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.protos import AttrValue

# Ops that reach beyond the graph when they run, and what they do. The registry does not tell: it
# marks ReadFile, MatchingFiles, ImmutableConst, DebugIdentity and Abort as stateless.
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
        SnapshotChunkDataset SnapshotDataset SnapshotDatasetReader SnapshotDatasetV2
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
        Abort CollectiveBcastRecv CollectiveBcastRecvV2 CollectiveBcastSend
        CollectiveBcastSendV2 CollectiveGather CollectiveGatherV2 CollectiveReduce
        CollectiveReduceV2 CollectiveReduceV3 Recv Send WorkerHeartbeat _HostRecv _HostSend
        _Recv _Send
        """,
    "opens network connections": """
        DataServiceDataset DataServiceDatasetV2 DataServiceDatasetV3 DataServiceDatasetV4
        RegisterDataset RegisterDatasetV2 RemoteCall RpcCall RpcCheckStatus RpcClient
        RpcGetValue RpcServer RpcServerRegister RpcServerStart
        """,
}
_EFFECT_OF_OP = {op: effect for effect, ops in SIDE_EFFECTS.items() for op in ops.split()}


def refuse_side_effects(graph: Graph, allowed: Iterable[str] = ()) -> None:
    """Raise RefusedError if running the graph's outputs would reach beyond the graph.

    `allowed` are the ops that may do so. Nodes and functions that no output needs do not count.
    """
    allowed = frozenset(allowed)
    live = graph
    if graph.outputs:
        live = graph.copy()
        live.prune()
    for node in live:
        _refuse_side_effect(node.op, node.attrs, f"node '{node.name}'", allowed)
    used = reachable(live)
    for function in graph.library.function:
        if function.signature.name in used:
            for body_node in function.node_def:
                where = f"function '{function.signature.name}', node '{body_node.name}'"
                _refuse_side_effect(body_node.op, body_node.attr, where, allowed)


def _refuse_side_effect(
    op: str, attrs: Mapping[str, AttrValue], where: str, allowed: frozenset[str]
) -> None:
    effect = _EFFECT_OF_OP.get(op)
    if op == "PrintV2" and "output_stream" in attrs and attrs["output_stream"].s[:5] == b"file:":
        effect = "writes a file"
    if effect is not None and op not in allowed:
        raise RefusedError(f"{where}: {op} {effect} when it runs (allow it with --allow-op {op})")
