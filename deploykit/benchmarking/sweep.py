"""Several values of some settings, and every combination of them."""

import itertools
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from deploykit.benchmarking.settings import FEED, NAMED, OPENMP, RESIDENT, Settings
from deploykit.transforms.core.engines.engines import TENSORFLOW
from deploykit.transforms.core.errors import GraphError

logger = logging.getLogger("deploykit")


@dataclass(frozen=True)
class Sweep:
    """Several values of some settings, of which every combination is measured.

    One value may stand for itself: `batch=8`, `threads=(2, 1)`, `onednn=False`.
    """

    batch: Sequence[int] | int = ()
    """Samples at once."""
    engine: Sequence[str] | str = ()
    """What computes: `tensorflow` or `openvino`. Where neither this nor `base` is given, it is the
    engine that the model was written for."""
    threads: Sequence[tuple[int, int]] | tuple[int, int] | int = ()
    """Threads inside an op, and ops at once; a number is that of threads, with one op at once."""
    onednn: Sequence[bool] | bool = ()
    """Whether oneDNN's kernels are used."""
    caller_thread: Sequence[bool] | bool = ()
    """Whether the thread that calls oneDNN takes a share of the work."""
    keep_memory: Sequence[bool] | bool = ()
    """Whether the C library keeps freed memory."""
    concurrency: Sequence[int] | int = ()
    """Calls in flight."""
    executor: Sequence[str] | str = ()
    """Who runs the ops of a call: `default`, `caller` or `single`."""
    allocator: Sequence[str] | str = ()
    """What gives memory: `default`, `tcmalloc` or `huge-pages`."""
    kmp_blocktime: str | None = None
    """A variable of old guides, as are the next two; also measured without."""
    kmp_affinity: str | None = None
    omp_num_threads: int | None = None
    xla: bool = False
    """Whether XLA compiles (auto-clustering)."""
    precision: Sequence[str] | str = ()
    """`fp32`, `tf32`, `fp16` or `bf16`."""
    bf16: bool = False
    """The same as precision `bf16`."""
    input: str | None = None
    """`feed`, `tfdata` or `resident`; by default the first, and on a GPU the last too. Over files
    `feed`, `tfdata`, `queue`, or `all`, which is the default there."""
    device: str | None = None
    """`cpu`, `gpu`, `gpu:N` or `all`: every GPU, and one alone to compare."""
    base: Settings | str | os.PathLike[str] | None = None
    """Whatever is not given here: settings, or a file of `deploykit.tune`, which must have been
    measured on one of the models."""

    @property
    def names_engine(self) -> bool:
        """Whether it says what computes, and does not leave that to the model."""
        return bool(self.engine) or self.base is not None

    def settings(self) -> list[Settings]:
        """Return every combination, and what it is compared with.

        That is the same without the OpenMP variables, and on one GPU instead of all. What an engine
        does not have is left out of its combinations, with a warning. GraphError: no engine that is
        asked for has it.
        """
        found = self._combinations()
        is_chosen = self.base is None and all(each.engine for each in found)
        for said in dict.fromkeys(each.left_out for each in found if each.left_out):
            if is_chosen:
                raise GraphError("settings-lacking", reason=said)
            logger.warning("%s: it is measured without", said)
        return [*dict.fromkeys(each.in_engine for each in found)]

    def _combinations(self) -> list[Settings]:
        several = ("batch", "engine", "threads", "onednn", "caller_thread", "keep_memory",
                   "concurrency", "executor", "allocator", "precision")  # fmt: skip
        values_of = {name: _listed(name, getattr(self, name)) for name in several}
        if self.bf16:
            if self.precision and values_of["precision"] != ("bf16",):
                raise GraphError("give-one", options=["bf16", "precision"])
            values_of["precision"] = ("bf16",)
        given = {name: values for name, values in values_of.items() if values}
        single = {
            name: value
            for name in (*OPENMP, "xla", "input", "device")
            if (value := getattr(self, name)) not in (None, False)
        }
        base = self.base or Settings()
        if not isinstance(base, Settings):
            from deploykit.benchmarking.results import load_tuned  # NumPy, which help does without

            base = load_tuned(base)
        found = [
            replace(base, **single, **dict(zip(given, values, strict=True)))
            for values in itertools.product(*given.values())
        ]
        if any(name in single for name in OPENMP):
            without = [each.without_openmp for each in found]
            found = [each for pair in zip(without, found, strict=True) for each in pair]
        if any(each.device == "all" for each in found):  # one GPU too, to see how they scale
            alone = [replace(each, device="gpu:0") for each in found]
            found = [each for pair in zip(alone, found, strict=True) for each in pair]
        return found


def beside_resident(settings: Sequence[Settings]) -> tuple[Settings, ...]:
    """Return settings, and after each on a GPU that is fed, the same with resident inputs.

    What is fed is copied to the GPU, and the outputs back; the other line is computing alone.
    """
    found = []
    for each in settings:
        found.append(each)
        if each.device != "cpu" and each.input == FEED:
            found.append(replace(each, input=RESIDENT))
    return tuple(dict.fromkeys(found))


def _listed(name: str, values: Any) -> Sequence[Any]:
    """Return the values of a setting, of which one may stand for itself."""
    if name == "threads" and isinstance(values, int):
        values = (values, 1)
    if isinstance(values, int) or (name == "threads" and values and isinstance(values[0], int)):
        return (values,)
    if (names := NAMED.get(name)) is not None:
        named = (values,) if isinstance(values, str) else values
        for each in named:
            if each not in names:
                raise GraphError("not-one-of", what=f"the {name}", known=names, got=each)
        return tuple(None if each in ("default", TENSORFLOW) else each for each in named)
    return tuple(values)
