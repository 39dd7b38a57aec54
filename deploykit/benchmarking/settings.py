"""How a model is run: in which engine, what its process starts with, and the loop around it."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from deploykit.benchmarking.precision import PRECISIONS, check_precision, variables
from deploykit.hardware import allocators
from deploykit.hardware.allocators import ALLOCATORS
from deploykit.transforms.core.display.as_html import AsHtml
from deploykit.transforms.core.display.documents import converted
from deploykit.transforms.core.engines.engines import (
    ENGINES,
    MOST_BATCH,
    MOST_REQUESTS,
    MOST_THREADS,
    OPENVINO,
    TENSORFLOW,
    TITLES,
    check_engine,
)
from deploykit.transforms.core.errors import GraphError

# Activations of large batches go back to the kernel after every run, unless the C library keeps
# them: 1.5 times faster at batch 8 where TensorFlow runs without oneDNN.
KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "4000000000",
    "MALLOC_TOP_PAD_": "268435456",
}
FEED, RESIDENT = "feed", "resident"
INPUTS = (FEED, "tfdata", RESIDENT)
EXECUTORS = ("caller", "single")
"""Who runs the ops of a call, besides TensorFlow's default, which hands them to other threads."""
CPU_DEVICES = 1
"""As how many devices the CPU is shown to TensorFlow."""
SECONDS = 10
"""How long a model is measured, or a style of input, in all rounds together."""
CONFIDENCE = 0.998
"""Of intervals. Of 30 pairs that are alike, all should be found so: at 99 %, and by two clocks, one
in two such series would say something else."""
DEVICE = r"\A(cpu|all|gpu(:[0-9]+)?)\Z"
MOST = {"batch": MOST_BATCH, "concurrency": MOST_REQUESTS, "omp_num_threads": MOST_THREADS}
"""The largest value of each; options and files have the same bounds."""
_BLOCKTIME, _TEXT = r"\A([0-9]{1,9}|infinite)\Z", r"\A[ -~]{0,1000}\Z"
_Threads = Annotated[int, Meta(ge=1, le=MOST_THREADS)]
_SWITCHES = {
    "onednn": "TF_ENABLE_ONEDNN_OPTS",
    "caller_thread": "TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD",
}
_OF_TENSORFLOW = ("onednn", "caller_thread", "kmp_blocktime", "kmp_affinity", "omp_num_threads",
                  "xla", "input", "executor")  # fmt: skip
_ALLOCATORS_OF_TENSORFLOW = ("tcmalloc",)
_XLA = ("--tf_xla_auto_jit=2", "--tf_xla_cpu_global_jit")
OPENMP = {
    "kmp_blocktime": "KMP_BLOCKTIME",
    "kmp_affinity": "KMP_AFFINITY",
    "omp_num_threads": "OMP_NUM_THREADS",
}


def _one_of(names: Sequence[str]) -> str:
    """Return a pattern of names."""
    return rf"\A({'|'.join(names)})\Z"


@dataclass(frozen=True)
class RunConfig(AsHtml):
    """What can be set about a run. None: left to the engine, or to what the user has set.

    Example:
        >>> deploykit.RunConfig(batch=8, onednn=False).document()
        {'batch': 8, 'onednn': False}
    """

    OMIT_DEFAULTS: ClassVar = True

    batch: Annotated[int, Meta(ge=1, le=MOST_BATCH)] | None = None
    """Samples at once; None: as many as the inputs demand, or one."""
    threads: tuple[_Threads, _Threads] | None = None
    """Threads inside an op, and ops at once. OpenVINO runs the ops of a call one after another: it
    has as many at once as there are calls in flight."""
    onednn: bool | None = None
    caller_thread: bool | None = None
    """Whether the thread that calls oneDNN takes a share of the work."""
    keep_memory: bool | None = None
    """Whether the C library keeps freed memory."""
    kmp_blocktime: Annotated[str, Meta(pattern=_BLOCKTIME)] | None = None
    kmp_affinity: Annotated[str, Meta(pattern=_TEXT)] | None = None
    omp_num_threads: _Threads | None = None
    xla: bool = False
    precision: Annotated[str, Meta(pattern=_one_of(PRECISIONS))] | None = None
    """`fp32`, `tf32`, `fp16` or `bf16`; None: what the engine takes for float32, which is TF32 on
    newer GPUs of NVIDIA. `tf32` and `fp16` are theirs, `bf16` the CPU's."""
    concurrency: Annotated[int, Meta(ge=1, le=MOST_REQUESTS)] = 1
    """Calls in flight."""
    input: Annotated[str, Meta(pattern=_one_of(INPUTS))] = "feed"
    """feed or tfdata; or resident: the inputs lie on the device, and no output leaves it, so that
    what is timed is computing alone."""
    device: Annotated[str, Meta(pattern=DEVICE)] = "cpu"
    """cpu, gpu, gpu:N or all."""
    executor: Annotated[str, Meta(pattern=_one_of(EXECUTORS))] | None = None
    """`caller`: the ops of a call run one by one in the thread that makes it. `single`: the same by
    TensorFlow's SINGLE_THREADED_EXECUTOR, which refuses loops and conditions of TensorFlow 1."""
    allocator: Annotated[str, Meta(pattern=_one_of(ALLOCATORS))] | None = None
    """What gives memory instead of the C library: `tcmalloc`, loaded in front of it where that is
    installed, or `huge-pages`: the C library itself, which asks the kernel for pages of 2 MiB."""
    engine: Annotated[str, Meta(pattern=_one_of(ENGINES))] | None = None
    """What computes the graph: `openvino`; None and `tensorflow`: TensorFlow."""

    def __post_init__(self) -> None:
        """Let the one engine that is the default have one name."""
        if self.engine == TENSORFLOW:
            object.__setattr__(self, "engine", None)

    @property
    def environment(self) -> dict[str, str | None]:
        """The variables that are set for TensorFlow's process; None removes one."""
        found: dict[str, str | None] = {}
        for field, variable in _SWITCHES.items():
            if (value := getattr(self, field)) is not None:
                found[variable] = str(int(value))
        for field, variable in OPENMP.items():
            if (value := getattr(self, field)) is not None:
                found[variable] = str(value)
        if self.keep_memory is not None:
            found |= KEEP_MEMORY if self.keep_memory else dict.fromkeys(KEEP_MEMORY)
        if self.allocator is not None:
            found |= allocators.variables(self.allocator, os.environ)
        if self.engine == OPENVINO and allocators.PRELOAD in allocators.held(os.environ):
            found[allocators.PRELOAD] = None  # it dies of what is in the C library's place
        if self.xla:
            # Of a flag that is given twice, the last one counts.
            given = os.environ.get("TF_XLA_FLAGS", "").split()
            found["TF_XLA_FLAGS"] = " ".join([*given, *(f for f in _XLA if f not in given)])
        found |= variables(self.precision, self.device)
        if self.device != "cpu":
            found["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES")
        return found

    def check_here(self) -> None:
        """Raise GraphError for an engine or an allocator that cannot be had on this machine."""
        check_engine(self.engine or TENSORFLOW)
        check_precision(self.precision, self.device)
        if self.engine is not None and self.device != "cpu":
            raise GraphError("engine-cpu-only", engine=TITLES[self.engine], device=self.device)
        if self.in_engine != self:
            raise GraphError("settings-lacking", reason=self.left_out)
        if self.allocator is not None and (why := allocators.lacking(self.allocator)):
            raise GraphError("allocator-unavailable", allocator=self.allocator, reason=why)

    @property
    def without_openmp(self) -> "RunConfig":
        """The same without the variables of an OpenMP runtime."""
        return replace(self, kmp_blocktime=None, kmp_affinity=None, omp_num_threads=None)

    @property
    def in_engine(self) -> "RunConfig":
        """The same without what TensorFlow alone has, where another engine computes."""
        if self.engine is None:
            return self
        other: dict[str, Any] = {name: getattr(RunConfig, name) for name in _OF_TENSORFLOW}
        if self.allocator in _ALLOCATORS_OF_TENSORFLOW:
            other["allocator"] = None
        if self.threads is not None and self.threads[1] != self.concurrency:
            other["threads"] = (self.threads[0], 1)
        if self.precision in ("tf32", "fp16"):
            other["precision"] = None
        return replace(self, **other)

    @property
    def left_out(self) -> str:
        """Say what of it the engine does not have, and what is run instead; empty: it has all."""
        inside, name = self.in_engine, TITLES.get(self.engine or "", "")
        names = [each.name for each in fields(self)
                 if getattr(self, each.name) != getattr(inside, each.name)]  # fmt: skip
        alone = [RunConfig(**{n: getattr(self, n)}) for n in names if n != "threads"]
        said = [f"{name} has no {', no '.join(map(str, alone))}"] if alone else []
        if self.threads is not None and "threads" in names:
            inside_an_op, at_once = self.threads
            said.append(f"{name} runs the ops of a call one after another, which is threads "
                        f"{inside_an_op}x1 and not {inside_an_op}x{at_once}")  # fmt: skip
        return " and ".join(said)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> "RunConfig":
        """Return settings that were written. GraphError: they hold what cannot be set."""
        return converted(renamed(plain), cls)

    def __str__(self) -> str:
        """Return what is set, in words, such as `batch 8, threads 2x1, oneDNN off`."""
        words = [] if self.engine is None else [TITLES[self.engine]]
        if self.batch is not None:
            words.append(f"batch {self.batch}")
        if self.threads is not None:
            words.append("threads {}x{}".format(*self.threads))
        for field, word in (("onednn", "oneDNN"), ("caller_thread", "caller thread"),
                            ("keep_memory", "keep memory")):  # fmt: skip
            if (value := getattr(self, field)) is not None:
                words.append(f"{word} {'on' if value else 'off'}")
        words += [
            f"{v}={getattr(self, f)}" for f, v in OPENMP.items() if getattr(self, f) is not None
        ]
        words += ["xla"] * self.xla + ([] if self.precision is None else [self.precision])
        if self.concurrency > 1:
            words.append(f"{self.concurrency} in flight")
        words += [each for each in (self.input, self.device) if each not in ("feed", "cpu")]
        if self.executor is not None:
            words.append(f"executor {self.executor}")
        if self.allocator is not None:
            words.append(self.allocator)
        return ", ".join(words) or "TensorFlow's defaults"


def renamed(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain settings with what older files call otherwise. GraphError: one is unknown."""
    found = {name: value for name, value in plain.items() if name != "bf16"}
    if plain.get("bf16") is True:
        found["precision"] = "bf16"
    elif plain.get("bf16", False) is not False:
        raise GraphError("settings-wrong", name="bf16", got=plain["bf16"], bounds="")
    known = [field.name for field in fields(RunConfig)]
    if unknown := [name for name in found if name not in known]:
        raise GraphError("not-one-of", what="the setting", known=known, got=unknown[0])
    return found


def can_be_text(name: str, value: str) -> bool:
    """Return whether a text can be the value of a setting, or of its variable."""
    patterns = {"device": DEVICE, "kmp_blocktime": _BLOCKTIME}
    return re.search(patterns.get(name, _TEXT), value) is not None
