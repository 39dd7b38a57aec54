"""The TensorFlow engine: a session of a version's SavedModel."""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploykit.serving.execution.engines.engine import ALL, HERE, Loading
from deploykit.serving.execution.invalid_images import accepted_images, damaged_photo, filled_up
from deploykit.serving.execution.request_inputs import free_inputs, needs_rows
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.signatures import SERVE, Signature
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.engines.engines import TENSORFLOW, version_of
from deploykit.transforms.ir.protos import MetaGraphDef
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.memory import give_back
from deploykit.transforms.runtime.session import full_name
from deploykit.transforms.runtime.tensorflow_start import quiet, start_tensorflow

# TensorFlow caches an executor per set of outputs, each with a copy of a frozen graph's weights.
MAX_EXECUTORS = 8

# Seconds. For shorter requests, handing ops to other threads costs more than it gains, and those
# threads spin while they wait. So one thread runs all ops.
_SHORT = 0.05
_UNKNOWN = float("inf")
_HERE, _MANY = -1, 0  # TensorFlow's numbers: the calling thread; several threads

_CODES = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
    "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED",
    "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip


@dataclass(frozen=True)
class Traits:
    """Properties of a version's proto that affect how TensorFlow runs it."""

    any_shape: frozenset[str]
    """The input tensors that accept any shape."""
    needs_rows: bool
    """Whether it cannot run an empty batch."""
    photos: Mapping[str, Mapping[str, Sequence[str]]]
    """The nodes of preprocessed images, by signature and by alias of its image-file inputs."""

    @classmethod
    def of(cls, meta: MetaGraphDef, signatures: Mapping[str, Signature]) -> "Traits":
        """Inspect a proto that has passed `check_safe`."""
        photos = accepted_images(meta, signatures)
        return cls(free_inputs(meta, signatures), needs_rows(meta), photos)


class TensorFlowEngine:
    """A TensorFlow session of a version; implements `Engine`."""

    name = TENSORFLOW
    spreads = hands_over = False

    def __init__(
        self, folder: Path, signatures: Mapping[str, Signature], traits: Traits, loading: Loading
    ) -> None:
        """Load a version directory that has passed `check_safe`, to run these signatures.

        GraphError: TensorFlow rejects it.
        """
        parts = start_tensorflow()
        self.version = version_of(TENSORFLOW)
        self._signatures = dict(signatures)
        self.any_shape, self.needs_rows = traits.any_shape, traits.needs_rows
        self._photos = traits.photos
        self._inter_op = loading.inter_op
        self._op_error = parts.errors.OpError
        self._run_options = parts.config.RunOptions
        self._wrapper = parts.wrapper
        self._here: bytes = self._run_options(inter_op_thread_pool=_HERE).SerializeToString()
        graph = parts.ops.Graph()
        config = _config(loading, parts.config.ConfigProto)
        self._session: Any = parts.session.Session(graph=graph, config=config)
        try:
            with graph.as_default(), quiet(logging.ERROR):  # hides the loader's deprecation warning
                parts.loader.load(self._session, [SERVE], str(folder))
            self._tensors = {
                tensor.name: graph.get_tensor_by_name(tensor.name)._as_tf_output()
                for signature in self._signatures.values()
                for tensor in (*signature.inputs.values(), *signature.outputs.values())
            }
            self._ready = {
                node: graph.get_tensor_by_name(f"{node}:0")._as_tf_output()
                for used in self._photos.values()
                for nodes in used.values()
                for node in nodes
            }
        except (self._op_error, ValueError, KeyError, TypeError, RuntimeError, OSError) as error:
            self._session.close()
            raise GraphError(
                "runtime-failed",
                source=folder,
                runtime="TensorFlow",
                action="load it",
                reason=" ".join(str(error).split())[:500],
            ) from None
        self._executors: set[tuple[str, ...]] = set()
        self._seconds: dict[str, float] = {}

    def compute(
        self,
        signature: str,
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        seconds: float | None,
        slot: int,
    ) -> dict[str, Array]:
        """Implement `Engine.compute`."""
        chosen = self._signatures[signature]
        fetched = self._fetched(signature, outputs, tuple(chosen.outputs))
        fed = {self._tensors[chosen.inputs[alias].name]: a for alias, a in feeds.items()}
        fetches = [self._tensors[chosen.outputs[alias].name] for alias in fetched]
        values = self._run(signature, fed, fetches, seconds, slot, (signature, feeds))
        return dict(zip(fetched, values, strict=True))

    def before(
        self,
        signature: str,
        feeds: Mapping[str, Array],
        expected: Sequence[str],
        seconds: float | None,
        slot: int,
    ) -> list[Array]:
        """Return tensors computed from a signature's inputs; otherwise as `compute`."""
        inputs = self._signatures[signature].inputs
        fed = {self._tensors[inputs[alias].name]: array for alias, array in feeds.items()}
        fetches = [self._tensor(item) for item in expected]
        key = f"{signature} before its model"
        return self._run(key, fed, fetches, seconds, slot, (signature, feeds))

    def after(
        self,
        signature: str,
        given: Mapping[str, Array],
        expected: Sequence[str],
        seconds: float | None,
        slot: int,
    ) -> list[Array]:
        """Return tensors computed from other tensors of the graph; otherwise as `compute`."""
        fed = {self._tensor(name): array for name, array in given.items()}
        fetches = [self._tensor(item) for item in expected]
        return self._run(f"{signature} after its model", fed, fetches, seconds, slot)

    def _tensor(self, name: str) -> Any:
        name = full_name(name)
        if name not in self._tensors:
            graph = self._session.graph
            self._tensors[name] = graph.get_tensor_by_name(name)._as_tf_output()
        return self._tensors[name]

    def _run(
        self,
        key: str,
        fed: Mapping[Any, Array],
        fetches: list[Any],
        seconds: float | None,
        slot: int,
        photos: tuple[str, Mapping[str, Array]] | None = None,
    ) -> list[Array]:
        """Return the values of `fetches`. An error names the first invalid image of `photos`."""
        # The thread's CPU time excludes the wait for the GIL after the computation.
        clock = time.thread_time if slot == HERE else time.monotonic
        options = self._here if slot == HERE else self._within(seconds, key, slot)
        start = clock()
        try:
            values: list[Array] = self._session_run(options, fed, fetches)
        except self._op_error as error:
            code = _CODES[error.error_code] if error.error_code < len(_CODES) else "INTERNAL"
            text = self._damaged(*photos) if photos and code == "INVALID_ARGUMENT" else ""
            code = "INTERNAL" if code == "UNKNOWN" else code
            raise ServingError(code, "tensorflow-refuses", reason=text or error.message) from None
        finally:
            self._seconds[key] = clock() - start
        return values

    def close(self) -> None:
        """Release all memory. No thread may use it any more."""
        if self._session is not None:
            self._session.close()
        self._tensors = self._ready = {}
        self._session = None
        give_back()

    def _damaged(self, signature: str, feeds: Mapping[str, Array]) -> str:
        """Return the index of the first invalid image and the reason; "" if there is none."""
        inputs = self._signatures[signature].inputs

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

    def _session_run(self, options: bytes, fed: Mapping[Any, Array], fetches: list[Any]) -> Any:
        """Run the session without its Python wrapper, which is slower than a small model."""
        buffer = self._wrapper.TF_NewBufferFromString(options)
        try:
            return self._wrapper.TF_SessionRun_wrapper(
                self._session._session, buffer, fed, fetches, [], None
            )
        finally:
            self._wrapper.TF_DeleteBuffer(buffer)

    def _within(self, seconds: float | None, key: str, slot: int) -> bytes:
        """Return RunOptions with the time limit and thread pool of a request."""
        short = self._seconds.get(key, _UNKNOWN) < _SHORT
        one = slot != ALL and (self._inter_op < 0 or (self._inter_op == 0 and short))
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
        """Return the outputs to fetch: the requested ones, or all after too many combinations."""
        expected = tuple(sorted(set(outputs)))
        key = (signature, *expected)
        if expected != every and key not in self._executors:
            if len(self._executors) >= MAX_EXECUTORS:
                return every
            self._executors.add(key)
        return expected


def _config(loading: Loading, kind: Any) -> Any:
    """Return the ConfigProto of a session with its own thread pool, and one thread per slot."""
    config = kind(
        intra_op_parallelism_threads=loading.intra_op,
        inter_op_parallelism_threads=abs(loading.inter_op),
        use_per_session_threads=True,
        allow_soft_placement=True,
    )
    config.session_inter_op_thread_pool.add()  # has inter_op_parallelism_threads threads
    for slot in range(1, loading.slots + 1):
        name = f"deploykit slot {slot}"
        config.session_inter_op_thread_pool.add(num_threads=1, global_name=name)
    return config
