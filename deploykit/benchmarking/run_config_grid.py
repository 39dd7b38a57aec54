"""RunConfigGrid: lists of values for several settings, and all their combinations."""

import itertools
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

from deploykit.benchmarking import process_variables
from deploykit.benchmarking.process_variables import CALLER_THREAD, FORMER, Given
from deploykit.benchmarking.run_config import FEED, RESIDENT, RunConfig
from deploykit.storage.parameters import takes_former_names
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.common.flag import Flag
from deploykit.transforms.engines.engines import MAX_BATCH, MAX_REQUESTS, MAX_THREADS, TENSORFLOW

logger = logging.getLogger("deploykit")


@takes_former_names
@dataclass(frozen=True)
class RunConfigGrid:
    """Values of several settings; every combination is measured.

    A single value needs no list: `batch=8`, `threads=(2, 1)`, `onednn=False`.
    """

    HEADING: ClassVar = "Settings to measure"

    batch: Annotated[Sequence[int] | int, Flag(format="counts", at_most=MAX_BATCH)] = ()
    """Samples per batch; every listed number is measured [default: the model's fixed batch, or
    1]."""
    engine: Annotated[
        Sequence[Literal["tensorflow", "openvino"]] | Literal["tensorflow", "openvino"],
        Flag(format="one or more"),
    ] = ()
    """Execution engine: tensorflow, openvino, or both. The outputs of both are compared before the
    measurement [default: the engine that the model was written for, else TensorFlow]."""
    threads: Annotated[
        Sequence[tuple[int, int]] | tuple[int, int] | int, Flag(format="threads")
    ] = ()
    """Threads per op and, after an x, number of concurrent ops: 2 is the same as 2x1 [default:
    TensorFlow's]."""
    onednn: Annotated[Sequence[bool] | bool, Flag(format="switch")] = ()
    """Whether TensorFlow uses oneDNN's kernels [default: TensorFlow decides]."""
    env: Annotated[Given, Flag(metavar="NAME=VALUE", format="variable")] = field(
        default_factory=dict
    )
    """Set an environment variable of the process that runs the model, such as KMP_BLOCKTIME=1. The
    value is everything after the first =; NAME= unsets the variable. May be repeated: every value
    of a name is measured with every value of the others."""
    caller_thread: Annotated[
        Sequence[bool] | bool, Flag(format="switch", hidden="--caller-thread")
    ] = ()
    """The same as `env` TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD=1 or 0."""
    keep_memory: Annotated[Sequence[bool] | bool, Flag(format="switch")] = ()
    """Whether the C library keeps freed memory for later (MALLOC_* variables) [default: as in the
    environment]."""
    concurrency: Annotated[Sequence[int] | int, Flag(format="counts", at_most=MAX_REQUESTS)] = ()
    """Number of concurrent calls [default: 1]."""
    executor: Annotated[
        Sequence[Literal["default", "caller", "single"]] | Literal["default", "caller", "single"],
        Flag(format="one or more"),
    ] = ()
    """Where the ops of a call run. default: in TensorFlow's thread pool; caller: one by one in the
    calling thread; single: the same with TensorFlow's single-threaded executor, which refuses loops
    and conditions of TensorFlow 1."""
    kmp_blocktime: Annotated[str | None, Flag(format="blocktime", hidden="--kmp-blocktime")] = None
    """Set KMP_BLOCKTIME as `env` does, and measure with and without it."""
    kmp_affinity: Annotated[str | None, Flag(metavar="TEXT", hidden="--kmp-affinity")] = None
    """Set KMP_AFFINITY as `env` does, and measure with and without it."""
    omp_num_threads: Annotated[
        int | None, Flag(at_most=MAX_THREADS, hidden="--omp-num-threads")
    ] = None
    """Set OMP_NUM_THREADS as `env` does, and measure with and without it."""
    xla: bool = False
    """Compile with XLA (auto-clustering)."""
    precision: Annotated[
        Sequence[Literal["fp32", "tf32", "fp16", "bf16"]] | Literal["fp32", "tf32", "fp16", "bf16"],
        Flag(format="one or more"),
    ] = ()
    """Compute precision: fp32, tf32 or fp16 on a GPU, fp32 or bf16 on the CPU; every listed one is
    measured [default: TensorFlow's for float32, which is tf32 on newer GPUs]."""
    bf16: bool = False
    """The same as `precision` bf16."""
    input: Literal["feed", "tfdata", "resident", "queue", "pipeline", "all"] | None = None
    """How data reaches the model: feed (with each call), tfdata (tf.data with prefetch), or
    resident (inputs stay on the device, and no output leaves it) [default: feed, and on a GPU
    resident too]. From files (`data` DIR): feed, queue, tfdata, pipeline (only that of `pipeline`),
    or all [default: all]."""
    device: Annotated[str | None, Flag(format="device")] = None
    """Device to run on; all: one copy of the model per GPU, compared with only gpu:0 [default:
    cpu]. To compare layouts, use deploykit transform --transforms 'convert_layout(to=NCHW)'."""
    tuned: Annotated[RunConfig | str | os.PathLike[str] | None, Flag(formerly="base")] = None
    """Start from the settings that deploykit tune wrote; other options override them."""

    @classmethod
    def coerced(cls, value: object) -> "RunConfigGrid | None":
        """Return a grid, or a RunConfig as a grid, or None for any other value."""
        if isinstance(value, RunConfig):
            return cls(tuned=value)
        return value if isinstance(value, cls) else None

    @property
    def names_engine(self) -> bool:
        """Whether the engine is set here, rather than by the model."""
        return bool(self.engine) or self.tuned is not None

    def settings(self) -> list[RunConfig]:
        """Return every combination, and the settings it is compared with.

        These are the same settings on one GPU instead of all, and without the variables of
        `kmp_blocktime`, `kmp_affinity` and `omp_num_threads`.
        Settings that an engine lacks are dropped with a warning. GraphError: no requested engine
        has a setting.
        """
        result = self._combinations()
        is_chosen = self.tuned is None and all(item.engine for item in result)
        for text in dict.fromkeys(item.left_out for item in result if item.left_out):
            if is_chosen:
                raise GraphError("settings-lacking", reason=text)
            logger.warning("%s: measured without", text)
        return [*dict.fromkeys(item.in_engine for item in result)]

    def _combinations(self) -> list[RunConfig]:
        several = ("batch", "engine", "threads", "onednn", "keep_memory", "concurrency",
                   "executor", "precision")  # fmt: skip
        values_of = {name: _listed(name, getattr(self, name)) for name in several}
        if self.bf16:
            if self.precision and values_of["precision"] != ("bf16",):
                raise GraphError("give-one", options=["bf16", "precision"])
            values_of["precision"] = ("bf16",)
        given = {name: values for name, values in values_of.items() if values}
        single = {
            name: value
            for name in ("xla", "input", "device")
            if (value := getattr(self, name)) not in (None, False)
        }
        base = self.tuned or RunConfig()
        if not isinstance(base, RunConfig):
            from deploykit.benchmarking.results import load_tuned  # NumPy: not for --help

            base = load_tuned(base)
        configs = [
            replace(base, **single, **dict(zip(given, values, strict=True))).with_variables(chosen)
            for values in itertools.product(*given.values())
            for chosen in process_variables.combinations(self._variables())
        ]
        former = {name: getattr(self, name) for name in FORMER if name != "caller_thread"}
        openmp = process_variables.FormerSettings(**former).variables
        if openmp:
            pairs = ((config, config.with_variables(openmp)) for config in configs)
            configs = [item for pair in pairs for item in pair]
        if any(match.device == "all" for match in configs):  # one GPU too, to measure the scaling
            alone = [replace(config, device="gpu:0") for config in configs]
            configs = [item for pair in zip(alone, configs, strict=True) for item in pair]
        return configs

    def _variables(self) -> Given:
        """Return the values of `env` and of `caller_thread`, by the names of variables.

        GraphError: `env` has a variable that a former option sets.
        """
        for name, variable in FORMER.items():
            if getattr(self, name) not in (None, ()) and variable in self.env:
                option = f"--{name.replace('_', '-')}"
                raise GraphError("give-one", options=[f"--env {variable}", option])
        switch = _listed("caller_thread", self.caller_thread)
        values = [str(int(value)) for value in switch]
        return {**self.env, CALLER_THREAD: values} if values else self.env


def beside_resident(settings: Sequence[RunConfig]) -> tuple[RunConfig, ...]:
    """Return settings, each on a GPU with feeds followed by the same with resident inputs.

    Feeding includes copies to the GPU and back; the other one is computation alone.
    """
    results = []
    for setting in settings:
        results.append(setting)
        if setting.device != "cpu" and setting.input == FEED:
            results.append(replace(setting, input=RESIDENT))
    return tuple(dict.fromkeys(results))


def _listed(name: str, values: Any) -> Sequence[Any]:
    """Return the values of a setting as a sequence; a single value becomes a list of one."""
    if name == "threads" and isinstance(values, int):
        values = (values, 1)
    is_pair = name == "threads" and values and isinstance(values[0], int)
    if isinstance(values, int | str) or is_pair:
        values = (values,)
    return tuple(None if value in ("default", TENSORFLOW) else value for value in values)
