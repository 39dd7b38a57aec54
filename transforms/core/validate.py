"""Whether a graph from an untrusted file can be handed to TensorFlow without killing the process.

TensorFlow is no safe parser: 238 bytes of a function that calls itself, or 163 bytes of a Const
whose type is not its tensor's, end the process that imports them, where no `except` can help.
Nothing here starts TensorFlow, recurses, or decodes a value.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from transforms.core.errors import GraphError, RefusedError, nearest
from transforms.core.functions import names_in, reachable
from transforms.core.graph import Graph
from transforms.core.node import Node, split
from transforms.core.ops import op_defs
from transforms.core.protos import AttrValue, FunctionDef, NodeDef, OpDef
from transforms.core.tensors import check_size, type_name

LEGAL_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")  # TensorFlow's own rule

# Nothing honest comes near these; TensorFlow takes minutes or all memory beyond them.
MAX_OUTPUTS = 1 << 20  # of one node
MAX_CALL_DEPTH = 256
MAX_EXPANDED_NODES = 20_000_000  # of the graph with every call replaced by what it calls

# The field of AttrValue that holds an attribute, by its type in the registry.
_FIELDS = {
    "string": "s",
    "int": "i",
    "float": "f",
    "bool": "b",
    "type": "type",
    "shape": "shape",
    "tensor": "tensor",
    "func": "func",
}
_TYPE_OF_FIELD = {field: type_ for type_, field in _FIELDS.items()}

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


def validate(graph: Graph) -> None:
    """Check a graph from an untrusted file; GraphError: what is wrong with which node.

    Every node has a legal name, a known op, as many data inputs as the op takes, inputs that their
    producers make, and the op's attributes in their types. Tensors fit their shapes and types.
    Functions exist, and neither call themselves nor expand beyond all bounds.
    """
    try:
        _validate(graph)
    except GraphError as error:  # names out of the file may hold anything, of any length
        sentence = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(error)[:1000])
        raise GraphError(sentence) from None


def _validate(graph: Graph) -> None:
    if not len(graph):
        raise GraphError("the graph has no node")
    rules = _Rules({f.signature.name: f for f in graph.library.function})
    for node in graph:
        rules.check(node)
    graph.check()
    made = {node.name: rules.output_count(node) for node in graph}
    for node in graph:
        data_inputs, reads = node.data_inputs, rules.input_count(node)
        if len(data_inputs) + len(node.control_inputs) < len(node.inputs):
            raise GraphError(f"node '{node.name}': a data input stands after a control input")
        if len(data_inputs) != reads:
            raise GraphError(
                f"node '{node.name}' ({node.op}) has {len(data_inputs)} data inputs, but its op "
                f"takes {reads}"
            )
        for tensor in data_inputs:
            name, port = split(tensor) if ":" in tensor else (tensor, 0)
            if port >= made[name]:
                raise _no_such_output(graph, tensor, made, f"node '{node.name}' reads '{tensor}'")
    for role, tensors in (("input", graph.inputs), ("output", graph.outputs)):
        for tensor in tensors:
            name, port = split(tensor)
            if port > 0 and port >= made[name]:  # a node without outputs may be run
                raise _no_such_output(graph, tensor, made, f"'{tensor}' is named as {role}")
    _check_library(graph, rules)


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


@dataclass(frozen=True, slots=True)
class _Rule:
    """What an op's definition demands of a node."""

    op_def: OpDef
    fields: dict[str, str]
    required: tuple[str, ...]
    defaults: dict[str, AttrValue]
    inputs: int | None
    """How many, or None where attributes say."""
    outputs: int | None


class _Rules:
    """The rules of the ops and functions that a graph may use."""

    def __init__(self, functions: Mapping[str, FunctionDef]) -> None:
        self.functions = functions
        self._rules: dict[str, _Rule] = {}

    def check(self, node: Node, in_function: bool = False) -> None:
        """Check a node by itself: name, op and attributes."""
        if not LEGAL_NAME.fullmatch(node.name):
            raise GraphError(
                f"node '{node.name[:80]}': its name is not legal; a name starts with a letter, a "
                "digit or a dot, and goes on with these and _ / \\ - >"
            )
        rule = self._rule(node)
        for name in rule.required:
            if name not in node.attrs:
                raise GraphError(
                    f"node '{node.name}' ({node.op}) lacks the attribute '{name}', which its op "
                    "demands"
                )
        for name, value in node.attrs.items():
            kind = value.WhichOneof("value")
            expected = rule.fields.get(name)
            if kind == "placeholder" and in_function:
                continue
            if expected is not None and kind != expected:
                raise GraphError(
                    f"node '{node.name}' ({node.op}): attribute '{name}' holds "
                    f"{_TYPE_OF_FIELD.get(kind or '', kind or 'nothing')}, but its op demands "
                    f"{_TYPE_OF_FIELD.get(expected, expected)}"
                )
            if kind == "shape":
                sizes = [dim.size for dim in value.shape.dim]
                if math.prod(max(size, 1) for size in sizes) >= 1 << 63:
                    raise GraphError(f"node '{node.name}': no tensor has the shape {sizes}")
            elif kind == "tensor":
                self._check_tensors(node, [value])
            elif kind == "list" and value.list.tensor:
                self._check_tensors(node, [AttrValue(tensor=t) for t in value.list.tensor])
            if expected in ("func", "list"):
                self._check_functions(node, name, value, name in rule.required)
        if node.op in ("Const", "HostConst"):
            declared, held = node.attrs["dtype"], node.attrs["value"].tensor.dtype
            if declared.WhichOneof("value") == "type" and declared.type != held:
                raise GraphError(
                    f"node '{node.name}': its type is {type_name(declared.type)}, but its tensor "
                    f"is of type {type_name(held)}"
                )
        if rule.outputs is None and not in_function:
            count = self.output_count(node)
            if not 0 <= count <= MAX_OUTPUTS:
                raise GraphError(
                    f"node '{node.name}' ({node.op}) asks for {count} outputs, but there can be at "
                    f"most {MAX_OUTPUTS}"
                )

    def _check_tensors(self, node: Node, values: Iterable[AttrValue]) -> None:
        for value in values:
            try:
                check_size(value.tensor)
            except GraphError as error:
                raise GraphError(f"node '{node.name}': {error}") from None

    def _check_functions(self, node: Node, attr: str, value: AttrValue, required: bool) -> None:
        used = [value.func] if value.HasField("func") else value.list.func
        for function in used:
            known = function.name in self.functions or function.name in op_defs()
            if not known and (function.name or required):
                hint = nearest(function.name, tuple(self.functions))
                raise GraphError(
                    f"node '{node.name}' ({node.op}): the graph's library has no function "
                    f"'{function.name}', named by its attribute '{attr}'{hint}"
                )

    def input_count(self, node: Node) -> int:
        """Return how many data inputs a node must have."""
        rule = self._rule(node)
        return _count(node, rule, "input_arg") if rule.inputs is None else rule.inputs

    def output_count(self, node: Node) -> int:
        """Return how many outputs a node makes."""
        rule = self._rule(node)
        return _count(node, rule, "output_arg") if rule.outputs is None else rule.outputs

    def _rule(self, node: Node) -> _Rule:
        if node.op not in self._rules:
            op_def = op_defs().get(node.op)
            if op_def is None and node.op in self.functions:
                op_def = self.functions[node.op].signature
            if op_def is None:
                hint = nearest(node.op, (*self.functions, *op_defs()))
                raise GraphError(
                    f"node '{node.name}': {node.op} is neither an op of TensorFlow nor a function "
                    f"of the graph's library{hint}"
                )
            self._rules[node.op] = _make_rule(op_def)
        return self._rules[node.op]


def _make_rule(op_def: OpDef) -> _Rule:
    counts: list[int | None] = []
    for args in (op_def.input_arg, op_def.output_arg):
        is_fixed = not any(arg.number_attr or arg.type_list_attr for arg in args)
        counts.append(len(args) if is_fixed else None)
    return _Rule(
        op_def,
        {attr.name: _FIELDS.get(attr.type, "list") for attr in op_def.attr},
        tuple(attr.name for attr in op_def.attr if not attr.HasField("default_value")),
        {attr.name: attr.default_value for attr in op_def.attr},
        *counts,
    )


def _count(node: Node, rule: _Rule, side: str) -> int:
    """Return how many tensors a node reads or makes, without a list of them."""
    total = 0
    for arg in getattr(rule.op_def, side):
        name = arg.number_attr or arg.type_list_attr
        value = node.attrs.get(name) or rule.defaults.get(name, AttrValue())
        if arg.number_attr:
            total += value.i
        else:
            total += len(value.list.type) if arg.type_list_attr else 1
    return total


def _no_such_output(graph: Graph, tensor: str, made: Mapping[str, int], who: str) -> GraphError:
    node = graph.producer(tensor)
    plural = "" if made[node.name] == 1 else "s"
    return GraphError(
        f"{who}, but node '{node.name}' ({node.op}) has {made[node.name]} output{plural}"
    )


def _check_library(graph: Graph, rules: _Rules) -> None:
    if not graph.library.function:
        return
    if len(rules.functions) < len(graph.library.function):
        raise GraphError("two functions of the graph's library have the same name")
    for name, function in rules.functions.items():
        if name in op_defs():
            raise GraphError(f"function '{name}' bears the name of an op of TensorFlow")
        try:
            _check_body(function, rules)
        except GraphError as error:
            raise GraphError(f"function '{name}': {error}") from None
    calls = {
        name: _calls(function.node_def, rules.functions)
        for name, function in rules.functions.items()
    }
    sizes = dict.fromkeys(calls, 0)
    depths = dict.fromkeys(calls, 0)
    for name in _callees_first(calls):
        called = calls[name]
        sizes[name] = len(rules.functions[name].node_def) + sum(sizes[c] for c in called)
        depths[name] = 1 + max((depths[c] for c in called), default=0)
        if sizes[name] > MAX_EXPANDED_NODES or depths[name] > MAX_CALL_DEPTH:
            raise GraphError(
                f"function '{name}' stands for {sizes[name]} nodes in {depths[name]} levels of "
                f"calls, but at most {MAX_EXPANDED_NODES} in {MAX_CALL_DEPTH} levels are read"
            )
    total = sum(sizes[c] for c in _calls(graph, rules.functions))
    if total > MAX_EXPANDED_NODES:
        raise GraphError(
            f"the graph's calls stand for {total} nodes, but at most {MAX_EXPANDED_NODES} are read"
        )


def _check_body(function: FunctionDef, rules: _Rules) -> None:
    """Check a function's nodes by themselves, and that what they read is there, in no cycle.

    Ports are left to whoever instantiates the function: they depend on the attributes it is given.
    """
    body = Graph()
    for argument in function.signature.input_arg:
        body.add(Node(argument.name, "_Arg"))
    for proto in function.node_def:
        rules.check(Node.from_proto(proto), in_function=True)
        inputs = (f"^{i[1:]}" if i[:1] == "^" else i.partition(":")[0] for i in proto.input)
        body.add(Node(proto.name, proto.op, tuple(inputs)))
    returned = [tensor.partition(":")[0] for tensor in function.ret.values()]
    body.outputs = (*returned, *function.control_ret.values())
    body.check()


def _calls(
    nodes: Iterable[Node] | Iterable[NodeDef], functions: Mapping[str, FunctionDef]
) -> list[str]:
    """Return the functions that nodes call or name, as often as they do."""
    calls = []
    for node in nodes:
        attrs = node.attrs if isinstance(node, Node) else node.attr
        calls += [name for name in (node.op, *names_in(attrs.values())) if name in functions]
    return calls


def _callees_first(calls: Mapping[str, list[str]]) -> list[str]:
    """Return the functions, each after those that it calls. GraphError: one calls itself."""
    users: dict[str, list[str]] = {name: [] for name in calls}
    missing = {name: len(set(called)) for name, called in calls.items()}
    for name, called in calls.items():
        for callee in dict.fromkeys(called):
            users[callee].append(name)
    order = [name for name, count in missing.items() if not count]
    for name in order:  # which grows meanwhile
        for user in users[name]:
            missing[user] -= 1
            if not missing[user]:
                order.append(user)
    left = [name for name, count in missing.items() if count]
    if left:
        name, path = left[0], dict[str, None]()
        while name not in path:  # whoever is left calls one that is left
            path[name] = None
            name = next(callee for callee in calls[name] if missing[callee])
        cycle = list(path)[list(path).index(name) :]
        shown = " -> ".join([*cycle[:8], name])
        raise GraphError(f"function '{name}' calls itself ({shown}), without end")
    return order
