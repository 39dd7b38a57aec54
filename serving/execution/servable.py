"""A loaded version of a model, whose signatures run by alias in any engine."""

import functools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from deploykit.serving.execution.batch_parts import BatchParts
from deploykit.serving.execution.engines.engine import HERE, Engine
from deploykit.serving.execution.request_inputs import one_row, without_row
from deploykit.serving.execution.slots import QuickCalls, SlotTimes
from deploykit.serving.protocol.errors import refused
from deploykit.serving.protocol.signatures import LABELS, Signature, Tensor
from deploykit.transforms.ir.tensors import Array, numpy_type

_UNKNOWN = float("inf")
_NAMES = {"float32": "float", "float64": "double", "float16": "half"}


class Servable:
    """A loaded version; several threads may call `run` concurrently."""

    def __init__(
        self,
        folder: Path,
        name: str,
        version: int,
        signatures: Mapping[str, Signature],
        engines: Mapping[str, Engine],
        quick: QuickCalls,
        parts: BatchParts,
    ) -> None:
        """Store the parts. `engines` maps signatures to engines, which `close` closes."""
        self.folder, self.name, self.version = folder, name, version
        self.signatures = dict(signatures)
        self.parts = parts
        self.times = SlotTimes()
        self._engines = dict(engines)
        self._quick = quick

    def run(
        self,
        signature: str,
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        seconds: float | None = None,
        slot: int = HERE,
    ) -> dict[str, Array]:
        """Return the outputs by alias. In a slot, the request ends after `seconds`, if given.

        ServingError: an array does not match its input, the engine rejects it, or the deadline
        passes.
        """
        chosen, engine = self.signatures[signature], self._engines[signature]
        for number, (alias, array) in enumerate(sorted(feeds.items())):
            tensor = chosen.inputs[alias]
            _check_type(number, alias, array, tensor)
            if tensor.name not in engine.any_shape:
                _check_shape(alias, array, tensor)
        row = one_row(chosen.inputs, feeds) if engine.needs_rows else None
        # The thread's CPU time excludes the wait for the GIL after the computation.
        own = slot == HERE and not engine.hands_over
        clock = time.thread_time if own else time.monotonic
        start, result = clock(), None
        try:
            result = engine.compute(signature, row or feeds, outputs, seconds, slot)
        finally:
            self._quick.note(signature, feeds, _UNKNOWN if result is None else clock() - start)
        if row is not None:
            return {alias: without_row(chosen.outputs[alias], result[alias]) for alias in outputs}
        return {alias: result[alias] for alias in outputs}

    def is_quick(self, signature: str, feeds: Mapping[str, Array]) -> bool:
        """Return whether a request is too short for another thread: below a millisecond."""
        return self._quick.include(signature, feeds)

    @property
    def engines(self) -> list[str]:
        """The names and versions of the engines that run it."""
        return sorted({f"{engine.name} {engine.version}" for engine in self._engines.values()})

    @functools.cached_property
    def labels(self) -> list[str]:
        """The names of the classes that `export --labels` stored, or none."""
        try:
            return (self.folder / LABELS).read_text(errors="replace").splitlines()
        except OSError:
            return []

    def close(self) -> None:
        """Release all memory. No thread may use it any more."""
        for engine in {id(engine): engine for engine in self._engines.values()}.values():
            engine.close()
        self._engines = {}


def _check_type(number: int, alias: str, array: Array, tensor: Tensor) -> None:
    """Raise ServingError for an array of another dtype, which a feed would cast silently."""
    dtype = numpy_type(tensor.dtype)
    if array.dtype != dtype:
        kind = "string" if array.dtype == np.object_ else array.dtype.name
        expected, given = (_NAMES.get(name, name) for name in (tensor.dtype, kind))
        raise refused(
            "signature-argument", number=number, wanted=expected, given=given, alias=alias
        )


def _check_shape(alias: str, array: Array, tensor: Tensor) -> None:
    """Raise ServingError for an array of another shape, which would crash some kernels."""
    shape = tensor.shape
    if shape is not None and (
        len(shape) != array.ndim
        or any(size not in (-1, given) for size, given in zip(shape, array.shape, strict=True))
    ):
        known = [size if size >= 0 else None for size in shape]
        raise refused("signature-shape", alias=alias, shape=array.shape, expected=known)
