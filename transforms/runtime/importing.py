"""The check of a graph's bytes by TensorFlow's importer. `Importer` is for a child process.

It calls TensorFlow's shared libraries directly: TensorFlow's Python code takes seconds to start and
does not change the result.
"""

import contextlib
import ctypes
from pathlib import Path

from deploykit.transforms.engines.packages import package_folder
from deploykit.transforms.ir.graph import follow, no_collection
from deploykit.transforms.ir.node import Node, delimited
from deploykit.transforms.ir.protos import AttrValue, GraphDef, TensorProto
from deploykit.transforms.runtime.child_process import Worker, call
from deploykit.transforms.runtime.session import Session, refusal
from deploykit.transforms.untrusted.validate import GraphParts

_LIBRARIES = ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")
_LARGE = 4096  # bytes of a constant; larger ones are not shapes, axes or sizes
_SAME_SHAPE = frozenset({"Identity", "Snapshot", "StopGradient"}) | {
    *("Abs", "Ceil", "Elu", "Erf", "Exp", "Floor", "Log", "Neg", "Relu", "Relu6", "Rint", "Round"),
    *("Rsqrt", "Selu", "Sigmoid", "Sign", "Softplus", "Softsign", "Sqrt", "Square", "Tanh"),
}  # of one input and one output
_UNREGISTERED = "Op type not registered"
_POINTERS = ("TF_NewGraph", "TF_NewStatus", "TF_NewImportGraphDefOptions")


class ImportCheck:
    """TensorFlow's importer in a child process, which starts in the background.

    Use it for checked graphs only: an invalid one may exhaust the memory.
    """

    def __enter__(self) -> "ImportCheck":
        """Start the child."""
        # It does not need TensorFlow's Python code, so it leaves a child that has it to others.
        self._worker = Worker(f"{__name__}:Importer", forced={})
        return self

    def __exit__(self, *exception: object) -> None:
        """End the child."""
        self._worker.close()

    def check(self, graph_def: bytes) -> None:
        """Check a serialized GraphDef, such as a `light_form`.

        LoadError: TensorFlow refuses it. CrashError: TensorFlow crashes on it.
        """
        if not self._worker.ask("check", graph_def):
            call(f"{__name__}:import_in_python", graph_def)


@no_collection()
def light_form(graph: GraphParts) -> bytes:
    """Return the bytes of a smaller GraphDef that the importer refuses for the same reasons.

    Large constants become zeros of the same type and shape, as the importer does not read their
    values. Nodes that keep the shape of their input are omitted, as they accept any shape. The
    graph must have passed `validate`.
    """
    retained = list(map(without_values, graph.nodes()))
    named = {tensor[1:] for node in retained for tensor in node.control_inputs}
    for node in retained:
        if "_class" in node.attrs:  # the node is colocated with another one
            named.update(text.decode(errors="replace")[5:] for text in node.attrs["_class"].list.s)
    passed = {
        node.name: [node.inputs[0]]
        for node in retained
        if node.op in _SAME_SHAPE and node.attrs.keys() == {"T"} and node.name not in named
        if len(node.inputs) == 1 and not node.device
    }
    pieces: list[bytes] = []
    for node in retained:
        if node.name not in passed:
            if not passed.keys().isdisjoint(node.inputs):
                node = node.rewired(lambda tensor: follow(tensor, passed))
            pieces += delimited(1, node.serialized())
    rest = GraphDef(library=graph.library(), versions=graph.versions)
    return b"".join([*pieces, rest.SerializeToString()])


def without_values(node: Node) -> Node:
    """Return a node; a large constant becomes one of the same type and shape without content."""
    if node.op != "Const" or "value" not in node.attrs:
        return node
    tensor = node.attrs["value"].tensor
    if tensor.ByteSize() <= _LARGE:
        return node
    zeros = TensorProto(dtype=tensor.dtype, tensor_shape=tensor.tensor_shape)
    return node.with_attrs(value=AttrValue(tensor=zeros))


class Importer:
    """TensorFlow's graph importer without TensorFlow's Python code."""

    def __init__(self) -> None:
        """Load TensorFlow's shared libraries; if they have other names, import TensorFlow."""
        folder = package_folder() or Path()
        self._library: ctypes.CDLL | None = None
        with contextlib.suppress(OSError):
            for name in _LIBRARIES:
                library = ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL)
            for name in (*_POINTERS, "TF_NewBufferFromString"):
                getattr(library, name).restype = ctypes.c_void_p
            library.TF_Message.restype = ctypes.c_char_p
            self._library = library

    def check(self, graph_def: bytes) -> bool:
        """Import a serialized GraphDef; return whether the libraries know all of its ops.

        LoadError: TensorFlow refuses it; the message contains the reason.
        """
        fault = _UNREGISTERED if self._library is None else self._fault(self._library, graph_def)
        if fault and not fault.startswith(_UNREGISTERED):
            raise refusal(fault)
        return not fault

    def _fault(self, library: ctypes.CDLL, graph_def: bytes) -> str:
        graph, status, options = (ctypes.c_void_p(getattr(library, name)()) for name in _POINTERS)
        size = ctypes.c_size_t(len(graph_def))
        buffer = ctypes.c_void_p(library.TF_NewBufferFromString(graph_def, size))
        library.TF_GraphImportGraphDef(graph, buffer, options, status)
        text = ""
        if library.TF_GetCode(status):
            message = (library.TF_Message(status) or b"").decode(errors="replace")
            text = " ".join(message.split())[:400] or "it reports no reason"
        library.TF_DeleteBuffer(buffer)
        library.TF_DeleteGraph(graph)
        library.TF_DeleteStatus(status)
        library.TF_DeleteImportGraphDefOptions(options)
        return text


def import_in_python(graph_def: bytes) -> None:
    """Import a GraphDef with TensorFlow's Python code, which registers a few more ops.

    Call it in a separate child process, as TensorFlow cannot be loaded twice in one.
    LoadError: TensorFlow refuses it.
    """
    Session(graph_def)
