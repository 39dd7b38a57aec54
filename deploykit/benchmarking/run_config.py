"""RunConfig and BenchmarkOptions: engine, precision, environment of the process, and length of
the benchmark.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from deploykit.system import allocators
from deploykit.system.allocators import ALLOCATORS
from deploykit.system.machine import usable_cores
from deploykit.transforms.common.documents import AsHtml, converted
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.common.flag import Flag
from deploykit.transforms.engines.engines import (
    ENGINES,
    MOST_BATCH,
    MOST_REQUESTS,
    MOST_THREADS,
    OPENVINO,
    TENSORFLOW,
    TITLES,
    check_engine,
)
from deploykit.transforms.runtime.tensorflow_start import start_tensorflow

PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
TF32_SINCE = (8, 0)
"""The compute capability. Source: NVIDIA, CUDA C++ Programming Guide, section 20."""
_TF32 = "NVIDIA_TF32_OVERRIDE"
_TYPES = {"fp16": "float16", "bf16": "bfloat16"}


def check_precision(precision: str | None, device: str) -> None:
    """Raise GraphError where TensorFlow has no way to compute so on a device."""
    if device == "cpu" and precision in ("tf32", "fp16"):
        raise GraphError("precision-gpu-only", precision=precision)
    if device != "cpu" and precision == "bf16":
        raise GraphError("precision-bf16-cpu-only", device=device)


def variables(precision: str | None, device: str) -> dict[str, str | None]:
    """Return the variables that NVIDIA's libraries read when they start; None removes one."""
    if device == "cpu" or precision not in ("fp32", "tf32"):
        return {}
    return {_TF32: "0" if precision == "fp32" else None}


def set_up(precision: str | None, device: str, config: Any) -> None:
    """Let TensorFlow, in this process and in sessions of a ConfigProto, compute in a precision."""
    rewriter = config.graph_options.rewrite_options
    on = start_tensorflow().rewriter.RewriterConfig.ON
    if device == "cpu" and precision == "bf16":
        rewriter.auto_mixed_precision_onednn_bfloat16 = on
    if device != "cpu":
        if precision == "fp16":
            rewriter.auto_mixed_precision = on
        if precision in ("fp32", "tf32"):
            import tensorflow as tf

            tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")


def float32_of(capabilities: Iterable[tuple[int, int] | None]) -> str:
    """Return what float32 is multiplied in, in this process, on GPUs of these capabilities.

    There are none where the CPU computes. One that is not known is taken for one of before TF32.
    """
    each_has = [
        capability is not None and tuple(capability) >= TF32_SINCE for capability in capabilities
    ]
    if not each_has or not all(each_has) or os.environ.get(_TF32) == "0":
        return "fp32"
    import tensorflow as tf

    return "tf32" if tf.config.experimental.tensor_float_32_execution_enabled() else "fp32"


def check_computed(precision: str | None, layers: Mapping[str, int], float32: str) -> None:
    """Raise GraphError where TensorFlow does not compute in the precision that is asked for.

    `layers` says how many compute in which type, `float32` what float32 is multiplied in.
    """
    if precision == "tf32" and float32 != "tf32":
        raise GraphError("precision-tf32-missing")
    expected = _TYPES.get(precision or "")
    if expected is not None and not layers.get(expected):
        has = ", ".join(f"{count} in {type_}" for type_, count in sorted(layers.items()))
        raise GraphError("precision-without-effect", precision=precision, has=has or "it has none")


def in_words(precision: str | None, float32: str, layers: Mapping[str, int]) -> str:
    """Return in what it is computed, such as `fp16 (53 of 54 layers), the others tf32`."""
    expected = _TYPES.get(precision or "")
    if expected is None:
        return float32
    count, total = layers.get(expected, 0), sum(layers.values())
    return f"{precision} ({count} of {total} layers)" + (
        f", the others {float32}" if count < total else ""
    )


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
        changes: dict[str, str | None] = {}
        for field, variable in _SWITCHES.items():
            if (value := getattr(self, field)) is not None:
                changes[variable] = str(int(value))
        for field, variable in OPENMP.items():
            if (value := getattr(self, field)) is not None:
                changes[variable] = str(value)
        if self.keep_memory is not None:
            changes |= KEEP_MEMORY if self.keep_memory else dict.fromkeys(KEEP_MEMORY)
        if self.allocator is not None:
            changes |= allocators.variables(self.allocator, os.environ)
        if self.engine == OPENVINO and allocators.PRELOAD in allocators.held(os.environ):
            changes[allocators.PRELOAD] = None  # it dies of what is in the C library's place
        if self.xla:
            # Of a flag that is given twice, the last one counts.
            given = os.environ.get("TF_XLA_FLAGS", "").split()
            changes["TF_XLA_FLAGS"] = " ".join([*given, *(f for f in _XLA if f not in given)])
        changes |= variables(self.precision, self.device)
        if self.device != "cpu":
            changes["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES")
        return changes

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
        names = [field_.name for field_ in fields(self)
                 if getattr(self, field_.name) != getattr(inside, field_.name)]  # fmt: skip
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
        words += [item for item in (self.input, self.device) if item not in ("feed", "cpu")]
        if self.executor is not None:
            words.append(f"executor {self.executor}")
        if self.allocator is not None:
            words.append(self.allocator)
        return ", ".join(words) or "TensorFlow's defaults"


def renamed(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain settings with what older files call otherwise. GraphError: one is unknown."""
    results = {name: value for name, value in plain.items() if name != "bf16"}
    if plain.get("bf16") is True:
        results["precision"] = "bf16"
    elif plain.get("bf16", False) is not False:
        raise GraphError("settings-wrong", name="bf16", got=plain["bf16"], bounds="")
    known = [field.name for field in fields(RunConfig)]
    if unknown := [name for name in results if name not in known]:
        raise GraphError("not-one-of", what="the setting", known=known, got=unknown[0])
    return results


def can_be_text(name: str, value: str) -> bool:
    """Return whether a text can be the value of a setting, or of its variable."""
    patterns = {"device": DEVICE, "kmp_blocktime": _BLOCKTIME}
    return re.search(patterns.get(name, _TEXT), value) is not None


SINGLE, OFFLINE, SERVER = ("single", "offline", "server")


@dataclass(frozen=True)
class BenchmarkOptions:
    """How long, how often, or in which scenario models are measured."""

    HEADING: ClassVar = "Measuring"

    seconds: Annotated[float, Flag(hidden="--duration", metavar="SECONDS", above=0)] = SECONDS
    """Longest time to measure each model with each setting."""
    runs: int | None = None
    """Measure this many calls instead of `seconds`."""
    rounds: Annotated[int | None, Flag(is_python_only=True)] = None
    """Turns into which `runs` are divided (20), or of each style of input (5)."""
    scenario: Literal["single", "offline", "server"] | None = None
    """Measure each model alone, as MLPerf does: one request after another (single), all samples
    (offline), or requests at random times (server)."""
    rate: Annotated[float | None, Flag(metavar="CALLS", above=0)] = None
    """Requests per second in scenario server."""
    latency_limit: Annotated[float | None, Flag(metavar="MS", above=0)] = None
    """In scenario server, the result is only valid if p99 is within this limit."""

    def check(self) -> None:
        """Raise GraphError where options contradict each other."""
        if self.scenario == SERVER and self.rate is None:
            raise GraphError(
                "option-needs",
                option="scenario server",
                needed="a rate (--rate): the calls that arrive in a second",
            )
        for name, value in (("rate", self.rate), ("latency limit", self.latency_limit)):
            if value is not None and self.scenario != SERVER:
                raise GraphError("only-for", option=f"the {name}", what="scenario server")
        if self.scenario and not (self.runs is None and self.rounds is None):
            raise GraphError("scenario-needs-duration")

    def settings(self, given: RunConfig, *, chosen: bool) -> RunConfig:
        """Return settings with the calls in flight of the scenario, unless the user chose them."""
        if self.scenario == SINGLE and given.concurrency > 1:
            raise GraphError("scenario-single-concurrency", concurrency=given.concurrency)
        if self.scenario not in (OFFLINE, SERVER) or chosen or given.concurrency > 1:
            return given
        return replace(given, concurrency=usable_cores())
