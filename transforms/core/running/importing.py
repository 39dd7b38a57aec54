"""What TensorFlow itself says of a graph's bytes. `Importer` is meant for a child process.

TensorFlow's own libraries are asked directly: Python's part of TensorFlow takes seconds to start,
and adds nothing to what they accept.
"""

import contextlib
import ctypes
import importlib.util
from pathlib import Path

from deploykit.transforms.core.errors import LoadError
from deploykit.transforms.core.running.child import Worker
from deploykit.transforms.core.running.session import Session, refusal

_LIBRARIES = ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")
_UNREGISTERED = "Op type not registered"
_POINTERS = (
    "TF_NewGraph",
    "TF_NewStatus",
    "TF_NewImportGraphDefOptions",
    "TF_NewBufferFromString",
)


class ImportCheck:
    """TensorFlow's importer in a child process, which starts while its caller goes on.

    It is to be asked about checked graphs alone: a bad one may take all memory.
    """

    def __enter__(self) -> "ImportCheck":
        """Start the child."""
        self._worker = Worker(f"{__name__}:Importer")
        return self

    def __exit__(self, *exception: object) -> None:
        """End the child."""
        self._worker.close()

    def check(self, graph_def: bytes) -> None:
        """Ask about a serialised GraphDef.

        LoadError: TensorFlow refuses it. CrashError: TensorFlow dies of it.
        """
        self._worker.ask("check", graph_def)


class Importer:
    """TensorFlow's importer of graphs, without Python's TensorFlow around it."""

    def __init__(self) -> None:
        """Load TensorFlow's libraries; where there are none of these names, TensorFlow itself."""
        spec = importlib.util.find_spec("tensorflow")
        folder = Path(*(spec.submodule_search_locations if spec else None) or ())
        self._library: ctypes.CDLL | None = None
        with contextlib.suppress(OSError):
            for name in _LIBRARIES:
                library = ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL)
            for name in _POINTERS:
                getattr(library, name).restype = ctypes.c_void_p
            library.TF_Message.restype = ctypes.c_char_p
            self._library = library

    def check(self, graph_def: bytes) -> None:
        """Import a serialised GraphDef. LoadError: TensorFlow refuses it, and why."""
        fault = _UNREGISTERED if self._library is None else self._fault(self._library, graph_def)
        if fault.startswith(_UNREGISTERED):
            Session(graph_def)  # Python's part of TensorFlow brings a few more ops
        elif fault:
            raise LoadError(refusal(fault))

    def _fault(self, library: ctypes.CDLL, graph_def: bytes) -> str:
        """Return why TensorFlow refuses a graph, or an empty string."""
        graph, status, options = (
            ctypes.c_void_p(getattr(library, name)()) for name in _POINTERS[:3]
        )
        buffer = ctypes.c_void_p(
            library.TF_NewBufferFromString(graph_def, ctypes.c_size_t(len(graph_def)))
        )
        library.TF_GraphImportGraphDef(graph, buffer, options, status)
        text = ""
        if library.TF_GetCode(status):
            text = _sentence((library.TF_Message(status) or b"").decode(errors="replace"))
        library.TF_DeleteBuffer(buffer)
        library.TF_DeleteGraph(graph)
        library.TF_DeleteStatus(status)
        library.TF_DeleteImportGraphDefOptions(options)
        return text


def _sentence(text: str) -> str:
    return " ".join(text.split())[:400] or "it does not say why"
