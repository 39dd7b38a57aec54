"""The ConfigProto of a session, as the settings ask for it."""

import os
import re
from collections.abc import Sequence
from typing import Any

from deploykit.benchmarking.devices import gpu_number
from deploykit.benchmarking.precision import set_up
from deploykit.benchmarking.settings import RunConfig
from deploykit.transforms.core.running.tensorflow_start import start_tensorflow

_LOGICAL_CPU = re.compile(r"/CPU:(\d+)")


def config(settings: RunConfig, devices: Sequence[str] = ()) -> Any:
    """Return the ConfigProto of a session with these settings, and with emulated CPUs.

    What has no kernel on its device runs on the CPU (soft placement). GPU memory grows with need.
    """
    proto = start_tensorflow().config
    result = proto.ConfigProto(allow_soft_placement=True)
    if settings.device == "cpu":
        result.device_count["GPU"] = 0
        cpus = [int(found[1]) for each in devices if (found := _LOGICAL_CPU.fullmatch(each))]
        result.device_count["CPU"] = 1 + max(cpus, default=0)
    else:
        result.gpu_options.allow_growth = True
        number = gpu_number(settings.device)
        if number is not None:
            result.gpu_options.visible_device_list = str(number)
    if settings.threads is not None:
        result.intra_op_parallelism_threads, result.inter_op_parallelism_threads = settings.threads
    if settings.executor == "single":
        result.experimental.executor_type = "SINGLE_THREADED_EXECUTOR"
    if settings.xla:
        result.graph_options.optimizer_options.global_jit_level = proto.OptimizerOptions.ON_2
    set_up(settings.precision, settings.device, result)
    return result


def in_callers_thread(session: Any, fetches: Sequence[Any], fed: Sequence[Any]) -> Any:
    """Return a function of the arrays to feed that runs all ops in the thread that calls it.

    What is fetched is tensors, or ops, of which nothing is returned.
    """
    parts = start_tensorflow()
    operation = parts.ops.Operation
    options = parts.config.CallableOptions(
        feed=[tensor.name for tensor in fed],
        fetch=[each.name for each in fetches if not isinstance(each, operation)],
        target=[each.name for each in fetches if isinstance(each, operation)],
        run_options=parts.config.RunOptions(inter_op_thread_pool=-1),
    )
    return session._make_callable_from_options(options)


def gpu_options(config: Any) -> dict[str, Any]:
    """Return what the session does with GPUs, which is nothing where it is shown none."""
    if config.device_count.get("GPU") == 0:
        return {}
    autotune = os.environ.get("TF_CUDNN_USE_AUTOTUNE", "1")
    return {
        "visible": config.gpu_options.visible_device_list or "all",
        "memory_growth": config.gpu_options.allow_growth,
        "cudnn_autotune": autotune.lower() not in ("0", "false"),
    }
