"""One version of a model, loaded: a session, and its signatures called by alias."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deploykit.serving.execution.batch_parts import BatchParts
from deploykit.serving.execution.damaged_photos import damaged_photo, filled_up, photos_taken
from deploykit.serving.execution.empty_batches import needs_rows, one_row, without_row
from deploykit.serving.execution.free_shapes import free_inputs
from deploykit.serving.execution.quick_calls import QuickCalls
from deploykit.serving.execution.row_independence import unmixed
from deploykit.serving.execution.safety import check_safe
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.protos import MetaGraphDef
from deploykit.serving.protocol.signatures import SERVE, Tensor, read_meta_graph, signatures_of
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.running.free_memory import give_back
from deploykit.transforms.core.tensors import Array, numpy_type

# Each set of outputs has an executor of its own, with its own copy of a frozen graph's weights.
MAX_EXECUTORS = 8

# Seconds. Handing ops to other threads costs a shorter call more than they gain, and those threads
# spin while they wait for more: one thread computes them all.
_SHORT = 0.05
_UNKNOWN = float("inf")

HERE = 0
"""The thread that calls: it computes without handing anything over, and nothing ends it early."""
_HERE, _MANY = -1, 0  # TensorFlow's numbers: the thread that calls; several threads

_CODES = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
    "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED",
    "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
_NAMES = {"float32": "float", "float64": "double", "float16": "half"}


@dataclass(frozen=True)
class Loading:
    """How a session is made."""

    intra_op: int = 1
    """Threads inside an op. One, with as many calls at once as there are cores, answers most."""
    inter_op: int = 0
    """Ops at once; 0: as many as there are cores, but those of a short call one by one, in one
    thread; -1: so those of every call."""
    slots: int = 0
    """Calls that compute at once, each in a thread that all models share."""
    allowed_ops: tuple[str, ...] = ()
    """Ops that may reach beyond the model."""


class Servable:
    """A loaded version; `run` may be called from many threads at once."""

    def __init__(self, folder: Path, name: str, version: int, loading: Loading) -> None:
        """Load a version directory.

        FileError, GraphError: it is no sound SavedModel. RefusedError: it does what is not allowed.
        """
        import tensorflow as tf

        self.name, self.version, self.folder = name, version, folder
        meta = read_meta_graph(folder)
        check_safe(meta, folder, loading.allowed_ops)
        self.signatures = signatures_of(meta)
        self._free = free_inputs(meta, self.signatures)
        self._needs_rows = needs_rows(meta)
        self._photos = photos_taken(meta, self.signatures)
        self._quick = QuickCalls(meta, self._photos)
        self.parts = BatchParts(self.signatures, self._unmixed(meta) if loading.slots > 1 else ())
        del meta
        config = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=loading.intra_op,
            inter_op_parallelism_threads=abs(loading.inter_op),
            use_per_session_threads=True,
            allow_soft_placement=True,
        )
        config.session_inter_op_thread_pool.add()  # of as many threads
        for slot in range(1, loading.slots + 1):
            name = f"deploykit slot {slot}"
            config.session_inter_op_thread_pool.add(num_threads=1, global_name=name)
        self._inter_op = loading.inter_op
        self._op_error = tf.errors.OpError
        self._run_options = tf.compat.v1.RunOptions
        self._here: bytes = self._run_options(inter_op_thread_pool=_HERE).SerializeToString()
        graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=graph, config=config)
        try:
            with graph.as_default():
                tf.compat.v1.saved_model.loader.load(self._session, [SERVE], str(folder))
            self._tensors = {
                tensor.name: graph.get_tensor_by_name(tensor.name)._as_tf_output()
                for signature in self.signatures.values()
                for tensor in (*signature.inputs.values(), *signature.outputs.values())
            }
            self._ready = {
                node: graph.get_tensor_by_name(f"{node}:0")._as_tf_output()
                for taken in self._photos.values()
                for nodes in taken.values()
                for node in nodes
            }
        except (self._op_error, ValueError, KeyError, TypeError, RuntimeError, OSError) as error:
            self._session.close()
            raise GraphError(f"{folder}: TensorFlow cannot load it: {_sentence(error)}") from None
        self._executors: set[tuple[str, ...]] = set()
        self._seconds: dict[str, float] = {}

    def _unmixed(self, meta: MetaGraphDef) -> frozenset[str]:
        """Return the signatures that mix no rows, and whose inputs come in the shape they have."""
        return unmixed(meta, {
            name: each for name, each in self.signatures.items()
            if self._free.isdisjoint(tensor.name for tensor in each.inputs.values())
        })  # fmt: skip

    def run(
        self,
        signature: str,
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        seconds: float | None = None,
        slot: int = HERE,
    ) -> dict[str, Array]:
        """Return the outputs by alias; a slot ends the call after `seconds`, if they are given.

        ServingError: an array does not fit its input, TensorFlow refuses it, or time is over.
        """
        chosen = self.signatures[signature]
        for number, (alias, array) in enumerate(sorted(feeds.items())):
            tensor = chosen.inputs[alias]
            _check_type(number, alias, array, tensor)
            if tensor.name not in self._free:
                _check_shape(alias, array, tensor)
        row = one_row(chosen.inputs, feeds) if self._needs_rows else None
        fetched = self._fetched(signature, outputs, tuple(chosen.outputs))
        fed = {self._tensors[chosen.inputs[alias].name]: a for alias, a in (row or feeds).items()}
        fetches = [self._tensors[chosen.outputs[alias].name] for alias in fetched]
        try:
            values = self._call(signature, feeds, (fed, fetches), seconds, slot)
        except self._op_error as error:
            code = _CODES[error.error_code] if error.error_code < len(_CODES) else "INTERNAL"
            said = self._damaged(signature, feeds) if code == "INVALID_ARGUMENT" else ""
            code = "INTERNAL" if code == "UNKNOWN" else code
            raise ServingError(code, said or error.message) from None
        by_alias = dict(zip(fetched, values, strict=True))
        if row is not None:
            by_alias = {a: without_row(chosen.outputs[a], each) for a, each in by_alias.items()}
        return {alias: by_alias[alias] for alias in outputs}

    def _damaged(self, signature: str, feeds: Mapping[str, Array]) -> str:
        """Say which photo was refused, and why; nothing: none was."""
        inputs = self.signatures[signature].inputs

        def trial(alone: Mapping[str, Array], node: str) -> str:
            fed = {
                self._tensors[inputs[alias].name]: filled_up(array, inputs[alias].shape)
                for alias, array in alone.items()
            }
            try:
                self._session_run(self._here, fed, [self._ready[node]])
            except self._op_error as error:
                return str(error.message)
            return ""

        return damaged_photo(self._photos.get(signature, {}), feeds, trial)

    def is_quick(self, signature: str, feeds: Mapping[str, Array]) -> bool:
        """Say whether a call is not worth another thread: it takes less than a millisecond."""
        return self._quick.include(signature, feeds)

    def close(self) -> None:
        """Give all memory back. Nobody may be calling it any more."""
        self._session.close()
        self._tensors = self._ready = {}
        del self._session
        give_back()

    def _call(
        self,
        signature: str,
        feeds: Mapping[str, Array],
        run: tuple[Mapping[Any, Array], list[Any]],
        seconds: float | None,
        slot: int,
    ) -> Any:
        """Run the session in the threads that suit the call, and note how long that took."""
        # A thread's own time does not count how long it waits for Python's lock when it is done.
        clock = time.thread_time if slot == HERE else time.monotonic
        options = self._here if slot == HERE else self._within(seconds, signature, slot)
        start, values = clock(), None
        try:
            values = self._session_run(options, *run)
            return values
        finally:
            took = self._seconds[signature] = clock() - start
            self._quick.note(signature, feeds, _UNKNOWN if values is None else took)

    def _session_run(self, options: bytes, fed: Mapping[Any, Array], fetches: list[Any]) -> Any:
        """Run the session below its Python wrapper, whose checks take longer than a small model."""
        from tensorflow.python.client import pywrap_tf_session as session

        buffer = session.TF_NewBufferFromString(options)
        try:
            return session.TF_SessionRun_wrapper(
                self._session._session, buffer, fed, fetches, [], None
            )
        finally:
            session.TF_DeleteBuffer(buffer)

    def _within(self, seconds: float | None, signature: str, slot: int) -> bytes:
        """Return RunOptions that end a call when its time is over; one without a deadline stays."""
        short = self._seconds.get(signature, _UNKNOWN) < _SHORT
        one = self._inter_op < 0 or (self._inter_op == 0 and short)
        if one and seconds is None:
            return self._here
        options: bytes = self._run_options(
            timeout_in_ms=0 if seconds is None else max(1, math.ceil(seconds * 1000)),
            inter_op_thread_pool=slot if one else _MANY,
        ).SerializeToString()
        return options

    def _fetched(
        self, signature: str, outputs: Sequence[str], every: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return what is fetched for the outputs: these, or all when there are too many choices."""
        wanted = tuple(sorted(set(outputs)))
        key = (signature, *wanted)
        if wanted != every and key not in self._executors:
            if len(self._executors) >= MAX_EXECUTORS:
                return every
            self._executors.add(key)
        return wanted


def _check_type(number: int, alias: str, array: Array, tensor: Tensor) -> None:
    """Raise ServingError for an array of another type: a feed would cast it silently."""
    dtype = numpy_type(tensor.dtype)
    if array.dtype != dtype:
        wanted, given = (_NAMES.get(n, n) for n in (tensor.dtype, _type_of(array)))
        raise ServingError(
            "INVALID_ARGUMENT",
            f"Expects arg[{number}] to be {wanted} but {given} is provided (input '{alias}')",
        )


def _check_shape(alias: str, array: Array, tensor: Tensor) -> None:
    """Raise ServingError for an array of another shape, of which some kernels would die."""
    shape = tensor.shape
    if shape is not None and (
        len(shape) != array.ndim
        or any(size not in (-1, given) for size, given in zip(shape, array.shape, strict=True))
    ):
        known = [size if size >= 0 else None for size in shape]
        raise ServingError(
            "INVALID_ARGUMENT",
            f"input '{alias}' has shape {list(array.shape)}, but the signature takes {known}",
        )


def _type_of(array: Array) -> str:
    return "string" if array.dtype == np.object_ else array.dtype.name


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split())[:500]
