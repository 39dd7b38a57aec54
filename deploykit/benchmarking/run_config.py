"""RunConfig and BenchmarkOptions: engine, precision, environment of the process, and duration of
the benchmark.
"""

import functools
import logging
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar, TypeVar

from msgspec import Meta

from deploykit.benchmarking import process_variables
from deploykit.benchmarking.process_variables import FORMER, FormerSettings, Threads, Variables
from deploykit.storage.parameters import takes_former_names
from deploykit.transforms.common.documents import AsHtml, Written, converted
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.common.flag import Flag
from deploykit.transforms.engines.engines import (
    ENGINES,
    MAX_BATCH,
    MAX_REQUESTS,
    OPENVINO,
    TENSORFLOW,
    TITLES,
    check_engine,
)
from deploykit.transforms.runtime.tensorflow_start import start_tensorflow

PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
TF32_SINCE = (8, 0)
"""First compute capability with TF32. Source: NVIDIA, CUDA C++ Programming Guide, section 20."""
_TF32 = "NVIDIA_TF32_OVERRIDE"
_TYPES = {"fp16": "float16", "bf16": "bfloat16"}


def variables(precision: str | None, device: str) -> dict[str, str | None]:
    """Return the variables that NVIDIA's libraries read when they start; None unsets one."""
    if device == "cpu" or precision not in ("fp32", "tf32"):
        return {}
    return {_TF32: "0" if precision == "fp32" else None}


def set_up(precision: str | None, device: str, config: Any) -> None:
    """Enable a precision in this process and in sessions of a ConfigProto."""
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
    """Return the precision of float32 matrices on GPUs with these compute capabilities.

    Without GPUs it is fp32. A GPU of unknown capability counts as older than TF32.
    """
    each_has = [
        capability is not None and tuple(capability) >= TF32_SINCE for capability in capabilities
    ]
    if not each_has or not all(each_has) or os.environ.get(_TF32) == "0":
        return "fp32"
    import tensorflow as tf

    return "tf32" if tf.config.experimental.tensor_float_32_execution_enabled() else "fp32"


def check_computed(precision: str | None, layers: Mapping[str, int], float32: str) -> None:
    """Raise GraphError if TensorFlow does not run in the requested precision.

    `layers` is the number of layers by compute type, `float32` the precision of float32 matrices.
    """
    if precision == "tf32" and float32 != "tf32":
        raise GraphError("precision-tf32-missing")
    expected = _TYPES.get(precision or "")
    if expected is not None and not layers.get(expected):
        has = ", ".join(f"{count} in {type_}" for type_, count in sorted(layers.items()))
        raise GraphError("precision-without-effect", precision=precision, has=has or "it has none")


def in_words(precision: str | None, float32: str, layers: Mapping[str, int]) -> str:
    """Return the precision in words, such as `fp16 (53 of 54 layers), the others tf32`."""
    expected = _TYPES.get(precision or "")
    if expected is None:
        return float32
    count, total = layers.get(expected, 0), sum(layers.values())
    return f"{precision} ({count} of {total} layers)" + (
        f", the others {float32}" if count < total else ""
    )


# The C library otherwise returns the memory of large activations to the kernel after every run.
# Keeping it is 1.5x faster at batch 8 if TensorFlow runs without oneDNN.
KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "4000000000",
    "MALLOC_TOP_PAD_": "268435456",
}
FEED, RESIDENT = "feed", "resident"
INPUTS = (FEED, "tfdata", RESIDENT)
EXECUTORS = ("caller", "single")
"""Executors other than TensorFlow's default, which passes ops to other threads."""
CPU_DEVICES = 1
"""Number of CPU devices that TensorFlow sees."""
SECONDS = 10
"""Seconds to measure a model, or an input pipeline, over all rounds."""
CONFIDENCE = 0.998
"""Confidence level of intervals. At 99 %, one in two series of 30 equal pairs, compared by two
clocks, would report a false difference."""
DEVICE = r"\A(cpu|all|gpu(:[0-9]+)?)\Z"
_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
_OF_TENSORFLOW = ("onednn", "xla", "input", "executor")
_XLA = ("--tf_xla_auto_jit=2", "--tf_xla_cpu_global_jit")
_GPUS = "CUDA_VISIBLE_DEVICES"
_ALLOCATORS = {
    "tcmalloc": {process_variables.PRELOAD: "libtcmalloc_minimal.so.4"},
    "huge-pages": {process_variables.TUNABLES: "glibc.malloc.hugetlb=1"},
}
"""Variables of the allocators that older files name."""
logger = logging.getLogger("deploykit")
T = TypeVar("T")


def _one_of(names: Sequence[str]) -> str:
    """Return a pattern that matches one of these names."""
    return rf"\A({'|'.join(names)})\Z"


def _takes_former_settings(kind: type[T]) -> type[T]:
    """Let the constructor accept the settings of version 0.1 that are variables now."""
    made: Any = kind.__init__

    @functools.wraps(made)
    def make(self: Any, *values: Any, **keywords: Any) -> None:
        former = {name: keywords.pop(name) for name in FORMER if name in keywords}
        made(self, *values, **keywords)
        if former:
            env = dict(self.env) | FormerSettings(**former).variables
            object.__setattr__(self, "env", process_variables.sorted_variables(env))

    kind.__init__ = make  # type: ignore[method-assign]
    return kind


@_takes_former_settings
@takes_former_names
@dataclass(frozen=True)
class RunConfig(AsHtml):
    """Settings of a run. None means the default of the engine, or what the user has set.

    Example:
        >>> deploykit.RunConfig(batch=8, onednn=False).document()
        {'batch': 8, 'onednn': False}
    """

    OMIT_DEFAULTS: ClassVar = True

    batch: Annotated[int, Meta(ge=1, le=MAX_BATCH)] | None = None
    """Samples per batch; None: the batch that the inputs require, or 1."""
    threads: tuple[Threads, Threads] | None = None
    """Threads per op, and concurrent ops. OpenVINO runs the ops of a call sequentially, so its
    concurrent ops equal the concurrent calls."""
    onednn: bool | None = None
    env: Annotated[Variables, Written(by=process_variables.by_name, if_set=True)] = ()
    """Environment variables of the process that runs the model; a value of None unsets one. A
    mapping is stored sorted by name."""
    keep_memory: bool | None = None
    """Whether the C library keeps freed memory."""
    xla: bool = False
    precision: Annotated[str, Meta(pattern=_one_of(PRECISIONS))] | None = None
    """`fp32`, `tf32`, `fp16` or `bf16`; None: the engine's default for float32, which is TF32 on
    newer NVIDIA GPUs. `tf32` and `fp16` need such a GPU, `bf16` the CPU."""
    concurrency: Annotated[int, Meta(ge=1, le=MAX_REQUESTS)] = 1
    """Number of concurrent calls."""
    input: Annotated[str, Meta(pattern=_one_of(INPUTS))] = "feed"
    """`feed` or `tfdata`; or `resident`: inputs stay on the device and outputs are not copied back,
    so only the computation is timed."""
    device: Annotated[str, Meta(pattern=DEVICE)] = "cpu"
    """cpu, gpu, gpu:N or all."""
    executor: Annotated[str, Meta(pattern=_one_of(EXECUTORS))] | None = None
    """`caller`: the ops of a call run sequentially in the calling thread. `single`: the same with
    TensorFlow's SINGLE_THREADED_EXECUTOR, which refuses loops and conditions of TensorFlow 1."""
    engine: Annotated[str, Meta(pattern=_one_of(ENGINES))] | None = None
    """Execution engine: `openvino`, or `tensorflow`, which is stored as None."""

    def __post_init__(self) -> None:
        """Store the default engine as None and sort variables, so that equal settings are equal."""
        if self.engine == TENSORFLOW:
            object.__setattr__(self, "engine", None)
        object.__setattr__(self, "env", process_variables.sorted_variables(self.env))

    @property
    def environment(self) -> dict[str, str | None]:
        """Environment variables of TensorFlow's process; None unsets one."""
        changes: dict[str, str | None] = {}
        if self.onednn is not None:
            changes[_ONEDNN] = str(int(self.onednn))
        if self.keep_memory is not None:
            changes |= KEEP_MEMORY if self.keep_memory else dict.fromkeys(KEEP_MEMORY)
        if self.engine == OPENVINO and process_variables.preloads_malloc(os.environ):
            changes[process_variables.PRELOAD] = None  # it crashes with another allocator
        if self.xla:
            # The last value of a repeated flag applies.
            given = os.environ.get("TF_XLA_FLAGS", "").split()
            changes["TF_XLA_FLAGS"] = " ".join([*given, *(f for f in _XLA if f not in given)])
        changes |= variables(self.precision, self.device)
        if self.device != "cpu":
            changes[_GPUS] = os.environ.get(_GPUS)
        return changes | dict(self.env)

    def check_here(self) -> None:
        """Raise GraphError for an engine that is not available here, or for a contradiction."""
        check_engine(self.engine or TENSORFLOW)
        if self.device == "cpu" and self.precision in ("tf32", "fp16"):
            raise GraphError("precision-gpu-only", precision=self.precision)
        if self.device != "cpu" and self.precision == "bf16":
            raise GraphError("precision-bf16-cpu-only", device=self.device)
        if self.engine is not None and self.device != "cpu":
            raise GraphError("engine-cpu-only", engine=TITLES[self.engine], device=self.device)
        if self.in_engine != self:
            raise GraphError("settings-lacking", reason=self.left_out)
        own = dict(self.env)
        for name in own.keys() & process_variables.RESERVED:
            raise GraphError("variable-reserved", name=name)
        for part in replace(self, env=()).parts():
            for name in part.environment.keys() & own.keys() - {_GPUS}:
                raise GraphError("variable-set-twice", variable=name, setting=part)
        for name in variables(self.precision, self.device).keys() & own.keys():
            raise GraphError("variable-set-twice", variable=name, setting=self.precision)

    def parts(self) -> Iterator["RunConfig"]:
        """Yield the settings that environment variables define, one at a time."""
        for setting in fields(self):
            if setting.name == "env":
                yield from (RunConfig(env={name: value}) for name, value in dict(self.env).items())
            elif setting.name != "engine":  # a server chooses its own
                part = RunConfig(**{setting.name: getattr(self, setting.name)})
                if part.environment:
                    yield part

    def given_by(self, variables: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return the variables of an environment that already define these settings."""
        names = [*self.environment]
        if self.keep_memory is not None and process_variables.tunes_malloc(variables):
            names.append(process_variables.TUNABLES)
        return {name: variables[name] for name in names if name in variables}

    @property
    def without_openmp(self) -> "RunConfig":
        """These settings without OpenMP variables."""
        return replace(self, env=process_variables.without_openmp(self.env))

    def with_variables(self, changes: Mapping[str, str | None]) -> "RunConfig":
        """Return these settings with some variables added or replaced."""
        return replace(self, env=dict(self.env) | dict(changes))

    @property
    def in_engine(self) -> "RunConfig":
        """These settings without those that only TensorFlow has, if another engine is set."""
        if self.engine is None:
            return self
        other: dict[str, Any] = {name: getattr(RunConfig, name) for name in _OF_TENSORFLOW}
        other["env"] = process_variables.outside_tensorflow(self.env)
        if self.threads is not None and self.threads[1] != self.concurrency:
            other["threads"] = (self.threads[0], 1)
        if self.precision in ("tf32", "fp16"):
            other["precision"] = None
        return replace(self, **other)

    @property
    def left_out(self) -> str:
        """Settings that the engine lacks, and their replacement, in words; empty: none."""
        inside, name = self.in_engine, TITLES.get(self.engine or "", "")
        names = [field_.name for field_ in fields(self)
                 if getattr(self, field_.name) != getattr(inside, field_.name)]  # fmt: skip
        alone = [RunConfig(**{n: getattr(self, n)}) for n in names if n not in ("env", "threads")]
        reasons = [f"has no {', no '.join(map(str, alone))}"] if alone else []
        used = dict(inside.env)
        if unused := {n: value for n, value in dict(self.env).items() if n not in used}:
            words = ", ".join(process_variables.in_words(unused))
            reasons.append(f"does not use {words} (env)")
        if self.threads is not None and "threads" in names:
            inside_an_op, at_once = self.threads
            reasons.append("runs the ops of a call sequentially, which is threads "
                           f"{inside_an_op}x1 and not {inside_an_op}x{at_once}")  # fmt: skip
        return f"{name} {' and '.join(reasons)}" if reasons else ""

    def changes(self, other: "RunConfig") -> list[str]:
        """Return the names of the settings, other than variables, that differ."""
        names = [field_.name for field_ in fields(self) if field_.name != "env"]
        return [name for name in names if getattr(self, name) != getattr(other, name)]

    def changed_variables(self, other: "RunConfig") -> list[str]:
        """Return the names of the variables that differ; unset is not the same as not given."""
        pairs = {*dict(self.env).items()} ^ {*dict(other.env).items()}
        return sorted({name for name, _ in pairs})

    @classmethod
    def of(
        cls, plain: Mapping[str, Any], own: Collection[tuple[str, str | None]] = ()
    ) -> "RunConfig":
        """Return settings from a document, to run with; an allocator is ignored with a warning.

        GraphError: a name or value is not valid, or a variable may load code and is not among those
        that the user has given besides, `own`.
        """
        if "allocator" in plain:
            _ignore_allocator(str(plain["allocator"]))
        settings = converted(renamed({k: v for k, v in plain.items() if k != "allocator"}), cls)
        process_variables.check_from_file(settings.env, own)
        return settings

    def __str__(self) -> str:
        """Return the settings in words, such as `batch 8, threads 2x1, oneDNN off`."""
        words = [] if self.engine is None else [TITLES[self.engine]]
        if self.batch is not None:
            words.append(f"batch {self.batch}")
        if self.threads is not None:
            words.append("threads {}x{}".format(*self.threads))
        for field, word in (("onednn", "oneDNN"), ("keep_memory", "keep memory")):
            if (value := getattr(self, field)) is not None:
                words.append(f"{word} {'on' if value else 'off'}")
        words += process_variables.in_words(self.env)
        words += ["xla"] * self.xla + ([] if self.precision is None else [self.precision])
        if self.concurrency > 1:
            words.append(f"{self.concurrency} in flight")
        words += [item for item in (self.input, self.device) if item not in ("feed", "cpu")]
        if self.executor is not None:
            words.append(f"executor {self.executor}")
        return ", ".join(words) or "TensorFlow's defaults"


@functools.cache
def _ignore_allocator(name: str) -> None:
    """Warn once of a setting that an older file has."""
    variables = " ".join(f"{n}={v}" for n, v in _ALLOCATORS.get(name, {}).items())
    logger.warning("the setting allocator (%s) is ignored, as deploykit 0.2 has none; set %s for "
                   "the process instead", name, variables or "LD_PRELOAD")  # fmt: skip


def renamed(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain settings with the names of older files replaced. GraphError: unknown name.

    An allocator becomes the variable that selected it.
    """
    results = {name: value for name, value in plain.items() if name not in ("bf16", *FORMER)}
    allocator = _ALLOCATORS.get(str(results.pop("allocator", None)), {})
    former = converted({name: plain[name] for name in FORMER if name in plain}, FormerSettings)
    if env := former.variables | process_variables.parsed(plain) | allocator:
        results["env"] = [*env.items()]
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
    patterns = {"device": DEVICE, "kmp_blocktime": process_variables.BLOCKTIME}
    return re.search(patterns.get(name, process_variables.TEXT), value) is not None


@takes_former_names
@dataclass(frozen=True)
class BenchmarkOptions:
    """Duration or number of calls of a benchmark."""

    HEADING: ClassVar = "Measuring"

    seconds: Annotated[float, Flag(hidden="--duration", metavar="SECONDS", above=0)] = SECONDS
    """Longest time to measure each model with each setting."""
    runs: int | None = None
    """Measure this many calls instead of `seconds`."""
    rounds: Annotated[int | None, Flag(is_python_only=True)] = None
    """Rounds into which `runs` are divided (20), or rounds of each input pipeline (5)."""
