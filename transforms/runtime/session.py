"""Run a GraphDef in TensorFlow, after a check of its tensor sizes; read a checkpoint.

The functions are for a child process, see `child_process.call`.
"""

import copy
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from deploykit.transforms.common.errors import (
    Error,
    GraphError,
    LimitError,
    LoadError,
    failed,
    lacks_memory,
)
from deploykit.transforms.ir.graph import Graph, no_collection
from deploykit.transforms.ir.node import Node, split
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.ir.tensors import STRING_BYTES, Array, numpy_type, type_of
from deploykit.transforms.runtime import process_limits
from deploykit.transforms.runtime.tensorflow_start import start_tensorflow
from deploykit.transforms.untrusted.checkpoint_index import check_index
from deploykit.transforms.untrusted.files import readable_size

_NUMBER_CHARACTERS = 64  # of a number as text, without a width and precision


def refuse_large_tensors(graph: Any, most: int) -> None:
    """Raise LimitError if a `tf.Graph` has a tensor of more than `most` bytes.

    It names the first such node. A tensor without a static shape counts as small.
    """
    result = too_large_nodes(graph, most)
    for node in graph.get_operations() if result else ():
        if node.name in result:
            raise LimitError(
                "tensor-too-large", node=node.name, type=node.type, most=readable_size(most)
            )


def too_large_nodes(graph: Any, most: int) -> set[str]:
    """Return the nodes of a `tf.Graph` that have, or need, a tensor of more than `most` bytes.

    The graph's nodes are in execution order. The value of a Const does not count, as the file
    contains it. A tensor without a static shape counts as small.
    """
    names: set[str] = set()
    longest: dict[str, int] = {}  # by node: upper bound of the bytes of its longest string
    for node in graph.get_operations():
        if string := _longest_string(node, longest):
            longest[node.name] = string
        sizes = (_size(tensor, string) for tensor in node.outputs)
        needs = bool(names) and any(tensor.op.name in names for tensor in node.inputs)
        if needs or (node.type != "Const" and any(size > most for size in sizes)):
            names.add(node.name)
    return names


def _size(tensor: Any, string: int) -> int:
    shape = tensor.shape
    if not shape.is_fully_defined():
        return 0
    item = STRING_BYTES + string if tensor.dtype.name == "string" else tensor.dtype.size
    return math.prod(map(int, shape.as_list())) * int(item)


def _longest_string(node: Any, longest: dict[str, int]) -> int:
    if all(tensor.dtype.name != "string" for tensor in node.outputs):
        return 0
    if node.type == "Const":
        return max(map(len, node.get_attr("value").string_val), default=0)
    results = [longest.get(tensor.op.name, 0) for tensor in node.inputs]
    if node.type == "StringJoin":
        return sum(results) + len(node.get_attr("separator")) * max(len(results) - 1, 0)
    if node.type == "AsString":
        requested = (int(node.get_attr(name)) for name in ("width", "precision"))
        return _NUMBER_CHARACTERS + sum(max(item, 0) for item in requested)
    return max(results, default=0)


_AT_ONCE = 4  # values of the largest size that TensorFlow may keep at a time

_OF_A_CLUSTER = re.compile(
    r"Cannot assign a device for operation (?P<node>[^:\s]+): .*?"
    r"(?P<device>/job:(?!localhost)\w+[^\s,'\"]*)"
)


_HEADINGS = ("Graph execution error:", "Detected at node", "File ")  # before the actual error


class Session:
    """A TensorFlow session with one graph; Grappler is off by default."""

    def __init__(
        self, graph_def: bytes | GraphDef, grappler: bool = False, config: Any = None
    ) -> None:
        """Import the graph. LoadError: TensorFlow refuses it. GraphError: the ConfigProto."""
        parts = start_tensorflow()
        graph = parts.ops.Graph()
        if isinstance(graph_def, bytes):
            graph_def = GraphDef.FromString(graph_def)
        with graph.as_default(), no_collection():
            try:
                parts.importer.import_graph_def(graph_def, name="")
            except (ValueError, TypeError, MemoryError, parts.errors.OpError) as error:
                refused = refusal(sentence(error))
                if lacks_memory(error):
                    raise LimitError("not-enough-memory", reason=refused) from None
                raise refused from None
        self._start(graph, grappler, config)

    @classmethod
    def of_saved_model(cls, folder: str, tags: Sequence[str]) -> "Session":
        """Return a session of a SavedModel as TensorFlow loads it, with its variables and tables.

        GraphError: TensorFlow cannot load it.
        """
        parts = start_tensorflow()
        session = cls.__new__(cls)
        session._start(parts.ops.Graph(), False, None)
        with session.graph.as_default():
            try:
                parts.loader.load(session._session, list(tags), folder)
            except Exception as error:  # TensorFlow raises many types, from KeyError to its own
                raise runtime_failed(error, "load the SavedModel") from None
        session._names = {operation.name for operation in session.graph.get_operations()}
        return session

    def _start(self, graph: Any, grappler: bool, config: Any) -> None:
        self._parts = parts = start_tensorflow()
        config = parts.config.ConfigProto() if config is None else copy.deepcopy(config)
        if not grappler:
            rewriter = config.graph_options.rewrite_options
            rewriter.disable_meta_optimizer = True
            rewriter.constant_folding = parts.rewriter.RewriterConfig.OFF
            config.graph_options.optimizer_options.opt_level = -1
        self.graph = graph
        self._names = {operation.name for operation in graph.get_operations()}
        try:
            self._session = parts.session.Session(graph=graph, config=config)
        except (ValueError, MemoryError, parts.errors.OpError) as error:
            raise runtime_failed(error, "start a session") from None

    @property
    def devices(self) -> list[str]:
        """The full names of the devices that nodes can run on."""
        return [device.name for device in self._session.list_devices()]

    def has(self, name: str) -> bool:
        """Return whether the graph has a node of this name."""
        return name in self._names

    def run(self, fetches: list[str], feeds: Mapping[str, Array] | None = None) -> list[Array]:
        """Return the values of tensors. GraphError: a kernel refuses. LimitError: out of memory."""
        return self._run(fetches, feeds)

    def trace(self, fetches: list[str], feeds: Mapping[str, Array] | None = None) -> Any:
        """Run and return the RunMetadata: the executed graphs by device, and each node's outputs.

        Raises what `run` raises.
        """
        config = self._parts.config
        metadata = config.RunMetadata()
        level = config.RunOptions.SOFTWARE_TRACE  # more would start TensorFlow's profiler
        options = config.RunOptions(output_partition_graphs=True, trace_level=level)
        self._run(fetches, feeds, options=options, run_metadata=metadata)
        return metadata

    def _run(
        self, fetches: list[str], feeds: Mapping[str, Array] | None, **options: Any
    ) -> list[Array]:
        full = {full_name(name): value for name, value in (feeds or {}).items()}
        try:
            return list(self._session.run([full_name(n) for n in fetches], full, **options))
        except (ValueError, KeyError, TypeError, MemoryError, self._parts.errors.OpError) as error:
            raise runtime_failed(error, "run the graph") from None


def full_name(tensor: str) -> str:
    """Return a tensor's name with its port, as TensorFlow expects it."""
    return tensor if ":" in tensor else f"{tensor}:0"


def refusal(text: str) -> LoadError:
    """Return the error for TensorFlow's reason to refuse a graph, with the node."""
    node = re.search(r"\{\{(?:function_)?node ([^}\s]+)", text)
    return LoadError(
        "runtime-failed",
        source="" if node is None else f"node '{node[1]}'",
        runtime="TensorFlow",
        action="load the graph",
        reason=text,
    )


def runtime_failed(error: BaseException, action: str, /, **fields: object) -> Error:
    """Return the error for a TensorFlow exception during `action`, with its main sentence."""
    return failed(
        "runtime-failed",
        error,
        runtime="TensorFlow",
        action=action,
        reason=sentence(error),
        **fields,
    )


def sentence(error: Any) -> str:
    """Return the line of TensorFlow's message that names the problem and the node."""
    text = str(getattr(error, "message", error)).strip()
    if (match := _OF_A_CLUSTER.search(text)) is not None:
        return (
            f"node '{match['node']}' is assigned to {match['device']}, a process of the cluster "
            "that trained the model; deploykit transform --transforms remove_device takes that out"
        )
    lines = [line.strip() for line in text.splitlines()]
    at = max((i for i, line in enumerate(lines) if line.startswith("Node: ")), default=-1)
    if 0 <= at < len(lines) - 1:  # after "Graph execution error:" and its location
        return f"node {lines[at].removeprefix('Node: ')}: {lines[at + 1]}"[:300]
    reported = [line for line in lines if line and not line.startswith(_HEADINGS)]
    return reported[0][:300] if reported else type(error).__name__


def run_each(graph_def: bytes, fetches: list[str]) -> dict[str, Array]:
    """Return the values of those tensors that TensorFlow can compute, without any inputs."""
    return _values(Session(graph_def), fetches)


def run_constants(graph_def: bytes, fetches: list[str], most: int) -> dict[str, Array]:
    """Return the values of constant tensors that TensorFlow can compute, as an internal run.

    Values that take, or need, more than `most` bytes are omitted.
    """
    session = Session(graph_def)
    too_large = too_large_nodes(session.graph, most)
    with process_limits.internal_run(growth=_AT_ONCE * most):
        return _values(session, [name for name in fetches if split(name)[0] not in too_large])


def _values(session: Session, fetches: list[str]) -> dict[str, Array]:
    values = {}
    for name in fetches:
        try:
            (values[name],) = session.run([name])
        except GraphError:
            continue
    return values


def static_shapes(graph_def: bytes, tensors: list[str]) -> dict[str, tuple[int, ...] | None]:
    """Return the shape that TensorFlow infers for each tensor: -1 unknown, None unknown rank."""
    graph = Session(graph_def).graph
    shapes = {name: graph.get_tensor_by_name(full_name(name)).shape for name in tensors}
    return {
        name: None if shape.rank is None else tuple(-1 if s is None else s for s in shape.as_list())
        for name, shape in shapes.items()
    }


T = TypeVar("T")


def place_of(graph: Graph, tensor: str) -> tuple[str, str] | None:
    """Return the key and the slice of a tensor that a restore op reads; None: another tensor."""
    node, port = graph.producer(tensor), split(tensor)[1]
    while node.op == "Identity":
        tensor = node.inputs[0]
        node, port = graph.producer(tensor), split(tensor)[1]
    if node.op != "RestoreV2":
        return None
    names, parts = (graph.constant(i) for i in node.data_inputs[1:])
    if names is None or parts is None or max(names.value.size, parts.value.size) <= port:
        return None
    return names.value[port].decode(), parts.value[port].decode()


def check_restored(variable: Node, value: Array) -> None:
    """Raise GraphError if a value does not have the shape or the type of its variable."""
    shape = variable.attr("shape")
    if shape is not None and not (
        len(shape) == value.ndim
        and all(s in (-1, v) for s, v in zip(shape, value.shape, strict=True))
    ):
        raise GraphError("shape-mismatch", node=variable.name, shape=shape, found=value.shape)
    check_type(variable, value, variable.attr("dtype").removesuffix("_ref"))


def check_type(node: Node, value: Array, dtype: str) -> None:
    """Raise GraphError if a value of a variable or a table has another type than the graph states.

    TensorFlow does not restore it either.
    """
    is_quantized = value.dtype.fields is not None  # TensorFlow names the field as the type
    if dtype != type_of(value) and not is_quantized and numpy_type(dtype) != value.dtype:
        raise GraphError("variable-type", node=node.name, dtype=dtype, found=type_of(value))


def read_checkpoint(prefix: str, expected: dict[T, tuple[str, str]]) -> dict[T, Array]:
    """Return tensors of a checkpoint by the keys of `expected`; call it in a child process.

    `expected` maps each name to its key in the checkpoint and the slice of the tensor: empty for
    all of it, or sizes and a `start,length` or `-` for each axis, as in `10 4 0,5:-`. GraphError:
    the checkpoint cannot be read, or lacks a key. FileError: a file cannot be read.
    """
    parts = start_tensorflow()
    if os.path.lexists(f"{prefix}.index"):  # TensorFlow 0.x wrote none
        check_index(prefix)
    try:
        reader = parts.checkpoints.NewCheckpointReader(prefix)
        keys = _keys(reader, parts.objects.TrackableObjectGraph)
        missing = [key for key, _ in expected.values() if key not in keys]
        if missing:
            raise GraphError("checkpoint-lacks", count=len(missing), names=missing[:3])
        types = reader.get_variable_to_dtype_map()
        # Several names may share a tensor, which is then read only once.
        places = list(dict.fromkeys((keys[key], part) for key, part in expected.values()))
        values = parts.restoring.restore_v2(
            prefix=prefix,
            tensor_names=[key for key, _ in places],
            shape_and_slices=[part for _, part in places],
            dtypes=[types[key] for key, _ in places],
        )
        read = {place: value.numpy() for place, value in zip(places, values, strict=True)}
        return {name: read[keys[key], part] for name, (key, part) in expected.items()}
    except GraphError:
        raise
    except Exception as error:  # TensorFlow raises different types for damaged files
        text = " ".join(str(error).split())[:300] or type(error).__name__
        raise failed("checkpoint-not-readable", error, reason=text) from None


def _keys(reader: Any, object_graph: Any) -> dict[str, str]:
    """Return the names of the variables with their keys: tf.train.Checkpoint uses paths as keys."""
    known = reader.get_variable_to_shape_map()
    keys = {key: key for key in known}
    end = "/.ATTRIBUTES/VARIABLE_VALUE"
    for key in known:
        if key.endswith(end):
            keys.setdefault(key.removesuffix(end), key)
    if "_CHECKPOINTABLE_OBJECT_GRAPH" in known:
        content = reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH")
        for node in object_graph.FromString(content).nodes:
            for attribute in node.attributes:
                if attribute.full_name and attribute.checkpoint_key in known:
                    keys.setdefault(attribute.full_name, attribute.checkpoint_key)
    return keys
