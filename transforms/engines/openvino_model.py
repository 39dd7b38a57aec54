"""A frozen graph compiled by OpenVINO, and the types that its CPU plugin runs differently."""

import contextlib
import queue
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from deploykit.transforms.common.errors import GraphError, LoadError, unknown_name
from deploykit.transforms.engines.compiled_cache import CompiledGraph
from deploykit.transforms.engines.executed_ops import Executed, NodeNames
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.ir.tensors import Array, numpy_type, type_name
from deploykit.transforms.runtime.session import full_name

_TYPES = ("T", "dtype", "DstT", "SrcT")
_OTHERWISE = {
    "complex64": "without the imaginary part",
    "complex128": "without the imaginary part",
    "float64": "in float32",
}
_SATURATING = frozenset({"int8", "uint8"})
_ADDING = frozenset({
    "Add", "AddN", "AddV2", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "BiasAdd", "Cumsum",
    "MatMul", "Mul", "Neg", "Prod", "Square", "Sub", "Sum",
})  # fmt: skip
_WIDE = ("int64", "uint32", "uint64")
_MOST = (1 << 31) - 1


def check_types(graph_def: Any) -> None:
    """Raise LoadError for a node that OpenVINO would run in another type."""
    functions = (function.node_def for function in graph_def.library.function)
    for node in (item for nodes in (graph_def.node, *functions) for item in nodes):
        for name in _TYPES:
            type_ = type_name(node.attr[name].type) if name in node.attr else ""
            if how := _OTHERWISE.get(type_):
                raise LoadError("openvino-type", node=node.name, op=node.op, type=type_, how=how)
            if type_ == "string" and node.op == "Placeholder":
                raise LoadError("openvino-strings", name=node.name)
            if name == "T" and type_ in _SATURATING and node.op in _ADDING:
                raise LoadError("openvino-sum-saturates", node=node.name, op=node.op, type=type_)


def check_fed(feeds: Mapping[str, Any], types: Mapping[str, str]) -> None:
    """Raise GraphError if arrays do not fit the inputs of a graph.

    The type of an input is empty if no output depends on it.
    """
    for tensor, type_ in types.items():
        if type_ and tensor not in feeds:
            raise GraphError("openvino-input-not-fed", name=tensor)
    for tensor, array in feeds.items():
        if tensor not in types:
            raise unknown_name("input", tensor, sorted(types))
        result = getattr(getattr(array, "dtype", None), "name", type(array).__name__)
        if types[tensor] and result != types[tensor]:
            raise GraphError(
                "does-not-fit", what=f"input '{tensor}'", got=result, expected=types[tensor]
            )
        if result in _WIDE:
            _check_range(tensor, array)


def _check_range(tensor: str, array: Array) -> None:
    """Raise GraphError for integers beyond 32 bits, which OpenVINO's CPU plugin would change."""
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    if low < -_MOST - 1 or high > _MOST:
        beyond = high if high > _MOST else low
        raise GraphError("openvino-whole-numbers", name=tensor, value=beyond)


_SENDING = ("openvino_telemetry", "openvino.tools.ovc")
_UNKNOWN_OPS = re.compile(r"No conversion rule found for operations: ([^\n]+)")


@dataclass(frozen=True)
class Compiling:
    """Settings for compiling a graph."""

    threads: int = 0
    """Threads of all calls together; 0: the number of cores."""
    streams: int = 1
    """Number of calls that run concurrently; the threads are divided among them."""
    precision: str = "f32"
    """Type of layers that are not int8: f32, or bf16."""
    profiles: bool = False
    """Whether each call measures the time of each op."""


DEFAULT = Compiling()

Watch = Callable[[Callable[[], object]], contextlib.AbstractContextManager[object]]
"""Takes a function that cancels a call between two ops; the context lasts for the call."""


class OpenVinoModel:
    """A compiled graph; many threads may call `run` concurrently, `streams` of them run.

    Inputs and outputs have their names in the graph.
    """

    def __init__(
        self,
        graph_def: bytes,
        inputs: Mapping[str, str],
        outputs: Sequence[str],
        compiling: Compiling = DEFAULT,
        retained: CompiledGraph | None = None,
    ) -> None:
        """Read and compile a graph with only the nodes that the outputs need, for any batch size.

        `inputs` maps each input to its Placeholder. `retained` is the result of `compiled` for the
        same graph, outputs and settings, to load instead; `executed` then has no node names.
        LoadError: OpenVINO does not support an op, or refuses the graph.
        """
        openvino = imported()
        self._openvino = openvino
        parsed = GraphDef.FromString(graph_def)
        check_types(parsed)
        self._names = NodeNames(parsed.node)
        with _refused("load the graph"):
            config = {
                "PERF_COUNT": compiling.profiles,
                "INFERENCE_PRECISION_HINT": compiling.precision,  # the default may be bf16
                "NUM_STREAMS": compiling.streams,
                "INFERENCE_NUM_THREADS": compiling.threads,
                "ENABLE_CPU_PINNING": False,
            }
            if retained is None:
                model = read(graph_def, outputs, self._names)
                read_inputs = [input_ for input_ in model.inputs if input_.get_target_inputs()]
                self._needed = frozenset(_plain(read_input.any_name) for read_input in read_inputs)
                self._compiled = openvino.Core().compile_model(model, "CPU", config)
            else:
                self._needed = retained.needed
                self._compiled = openvino.Core().import_model(bytes(retained.blob), "CPU", config)
        places = {_plain(item.any_name): place for place, item in enumerate(self._compiled.inputs)}
        self._inputs = {tensor: places.get(name) for tensor, name in inputs.items()}
        fed = {node.name: type_name(node.attr["dtype"].type) for node in parsed.node}
        self._types = {tensor: fed[n] if n in self._needed else "" for tensor, n in inputs.items()}
        types = [output.get_element_type().get_type_name() for output in self._compiled.outputs]
        self._bfloats = [place for place, type_ in enumerate(types) if type_ == "bf16"]
        self._idle: queue.LifoQueue[Any] = queue.LifoQueue()
        for _ in range(max(compiling.streams, 1)):
            self._idle.put(self._compiled.create_infer_request())

    def run(self, feeds: Mapping[str, Array], watch: Watch | None = None) -> list[Array]:
        """Return the outputs. GraphError: OpenVINO refuses the arrays, or the call is cancelled.

        With one thread and one stream it cannot be cancelled, but runs to its end.

        GraphError as well: an input is missing, or an array has another type or shape than its
        input.
        """
        check_fed(feeds, self._types)
        request = self._idle.get()
        try:
            places = {self._inputs[tensor]: array for tensor, array in feeds.items()}
            given = {place: array for place, array in places.items() if place is not None}
            watched = contextlib.nullcontext() if watch is None else watch(request.cancel)
            with _refused("run the graph", GraphError), watched:
                result = request.infer(given, share_inputs=True, share_outputs=False)
                values = [result[place] for place in range(len(self._compiled.outputs))]
            for place in self._bfloats:  # OpenVINO returns their bits in another 16-bit type
                values[place] = values[place].view(numpy_type("bfloat16"))
            return values
        except GraphError:  # a cancelled request may still write, so no other call may use it
            request = self._compiled.create_infer_request()
            raise
        finally:
            self._idle.put(request)

    def compiled(self) -> CompiledGraph:
        """Return a form that loads faster, for this machine and this version of OpenVINO."""
        return CompiledGraph(self._needed, self._compiled.export_model().getbuffer())

    def executed(self) -> tuple[Executed, ...]:
        """Return the ops that OpenVINO runs for the graph, in execution order.

        They have times after a call, if the graph was compiled with `profiles`.
        """
        return self._names.executed(self._compiled)

    @property
    def facts(self) -> dict[str, Any]:
        """The settings in effect: threads and streams."""
        return {
            "threads": int(self._compiled.get_property("INFERENCE_NUM_THREADS")),
            "streams": int(self._compiled.get_property("NUM_STREAMS")),
        }


def imported() -> Any:
    """Return the package `openvino`, imported without its telemetry.

    Its converter reports each import over the network by `openvino_telemetry`. Both are hidden
    during the import, unless this process has imported them before.
    """
    if "openvino" not in sys.modules:
        hidden = [name for name in _SENDING if name not in sys.modules]
        sys.modules.update(dict.fromkeys(hidden, cast(Any, None)))  # importing them now fails
        try:
            import openvino
        finally:
            for name in hidden:
                del sys.modules[name]
    openvino = sys.modules["openvino"]
    # The NumPy access of its first array hangs if two threads do it at the same time.
    openvino.Tensor(np.zeros(1, np.float32)).data.copy()
    return openvino


def read(graph_def: bytes, outputs: Sequence[str], names: NodeNames) -> Any:
    """Return OpenVINO's model of a graph, with these tensors as outputs in this order."""
    from openvino.frontend import FrontEndManager

    reader = FrontEndManager().load_by_framework("tf")
    with tempfile.NamedTemporaryFile(prefix="deploykit-", suffix=".pb") as file:
        file.write(graph_def)
        file.flush()
        model = reader.load(file.name)
        model.override_all_outputs([model.get_place_by_tensor_name(full_name(o)) for o in outputs])
        nodes = reader.decode(model).get_ops()
        converted = reader.convert(model)
    retained = {name for output in converted.outputs for name in output.get_names()}
    if len(converted.outputs) < len(outputs):  # later outputs would be mistaken for others
        lost = ", ".join(o for o in outputs if full_name(o) not in retained) or ", ".join(outputs)
        raise LoadError("openvino-output-lost", names=lost)
    names.give(nodes, converted)
    return converted


@contextlib.contextmanager
def _refused(action: str, kind: type[GraphError] = LoadError) -> Iterator[None]:
    """Convert OpenVINO's exceptions of several types to one sentence."""
    try:
        yield
    except GraphError:
        raise
    except Exception as error:
        if match := _UNKNOWN_OPS.search(str(error)):
            raise kind("openvino-unknown-op", op=match[1].strip()) from None
        raise kind(
            "runtime-failed", runtime="OpenVINO", action=action, reason=_sentence(error)
        ) from None


def _sentence(error: Exception) -> str:
    """Return the last line of OpenVINO's message: the problem, after its location."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__


def _plain(tensor: str) -> str:
    return tensor.removesuffix(":0")
