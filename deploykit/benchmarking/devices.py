"""The devices that a benchmark runs on, and the ConfigProto of a session for them."""

import contextlib
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from deploykit.benchmarking.run_config import RunConfig, set_up
from deploykit.system.doctor import gpu_refusal
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.runtime.child_process import Worker
from deploykit.transforms.runtime.tensorflow_start import start_tensorflow

logger = logging.getLogger("deploykit")

CPU = "/CPU:0"


def check_devices(requested: Iterable[str]) -> Sequence[str]:
    """Check that the requested GPUs exist before any measurement starts.

    Return the names of all GPUs that TensorFlow sees, or an empty list if no GPU is requested.
    GraphError: a requested GPU does not exist.
    """
    gpu_names = [item for item in requested if item != "cpu"]
    if not gpu_names:
        return []
    seen = visible_gpus()
    if not seen:
        raise GraphError("device-refused", device=gpu_names[0], reason=gpu_refusal())
    for item in gpu_names:
        devices_for(item, seen)
    return seen


def once_each(settings: Sequence[RunConfig], seen: Sequence[str]) -> tuple[RunConfig, ...]:
    """Return settings without duplicates: with one GPU, `all` is the same as `gpu:0`."""
    if len(seen) != 1 or not any(setting.device == "all" for setting in settings):
        return tuple(settings)
    logger.warning("TensorFlow sees only one GPU, %s: device 'all' is the same and is skipped",
                   seen[0])  # fmt: skip
    first = [
        replace(setting, device="gpu:0") if setting.device == "all" else setting
        for setting in settings
    ]
    return tuple(dict.fromkeys(first))


def visible_gpus() -> list[str]:
    """Return the names of the GPUs that TensorFlow sees in a child process, such as `NVIDIA H200`.

    CUDA_VISIBLE_DEVICES applies if the user has set it.
    """
    requested = RunConfig(device="all").environment
    with contextlib.closing(
        Worker("deploykit.benchmarking.devices:gpus", forced=requested)
    ) as worker:
        names: list[str] = worker.created()
    return names


def gpus() -> list[str]:
    """Return the names of the GPUs that TensorFlow sees in this process, without starting them."""
    import tensorflow as tf

    result = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(item) for item in result]
    return [detail.get("device_name", "GPU") for detail in details]


def gpu_bytes_peak() -> list[int]:
    """Return the peak of TensorFlow's allocator on each GPU in this process, in bytes.

    The list is empty if TensorFlow does not report it.
    """
    import tensorflow as tf

    results = []
    with contextlib.suppress(ValueError, RuntimeError, tf.errors.OpError):
        for number in range(len(tf.config.list_physical_devices("GPU"))):
            results.append(int(tf.config.experimental.get_memory_info(f"GPU:{number}")["peak"]))
    return results


def capabilities(config: Any) -> list[tuple[int, int] | None]:
    """Return the compute capability of each GPU that a session sees; None if it is unknown."""
    if config.device_count.get("GPU") == 0:
        return []
    import tensorflow as tf

    there = tf.config.list_physical_devices("GPU")
    shown = config.gpu_options.visible_device_list
    seen = [there[int(number)] for number in shown.split(",")] if shown else there
    details = [tf.config.experimental.get_device_details(item) for item in seen]
    return [detail.get("compute_capability") for detail in details]


def devices_for(requested: str, seen: Sequence[str]) -> tuple[str, ...]:
    """Return TensorFlow's device names for `cpu`, `gpu`, `gpu:N` or `all`.

    A process for one GPU sees only that GPU, so its name there is /GPU:0. GraphError: the GPU does
    not exist, or the text is not a device.
    """
    if requested == "cpu":
        return (CPU,)
    number = gpu_number(requested)
    if not seen:
        raise GraphError("gpu-missing", device=requested)
    if number is None:
        return tuple(f"/GPU:{index}" for index in range(len(seen)))
    if number >= len(seen):
        raise GraphError("gpu-number", device=requested, count=len(seen), last=len(seen) - 1)
    return ("/GPU:0",)


def check_on_gpu(device: str, on_cpu: Mapping[str, int], on_gpu: int) -> None:
    """Raise GraphError if a model's layers run on the CPU although a GPU was requested.

    `on_cpu` counts these layers by op, `on_gpu` is the number of layers on GPUs. Some float layers
    may run on the CPU, but not all of them, and no int8 layer.
    """
    in_8_bits = any("Quantized" in op for op in on_cpu)
    if device == "cpu" or not on_cpu or (on_gpu and not in_8_bits):
        return
    ops = ", ".join(sorted(on_cpu))
    count = sum(on_cpu.values())
    raise GraphError(
        "device-lacks-kernels", device=device, ops=ops, count=count, on_gpu=on_gpu + count
    )


def gpu_number(requested: str) -> int | None:
    """Return N of `gpu:N`, 0 of `gpu`, None of `all` and `cpu`. GraphError: not a device."""
    kind, colon, number = requested.partition(":")
    if requested in ("all", "cpu"):
        return None
    if kind != "gpu" or (colon and not number.isdecimal()):
        raise GraphError(
            "not-one-of", what="the device", known=["cpu", "gpu", "gpu:N", "all"], got=requested
        )
    return int(number or 0)


_LOGICAL_CPU = re.compile(r"/CPU:(\d+)")


def config(settings: RunConfig, devices: Sequence[str] = ()) -> Any:
    """Return the ConfigProto of a session with these settings, including emulated CPU devices.

    Ops without a kernel on their device run on the CPU (soft placement). GPU memory grows on
    demand.
    """
    proto = start_tensorflow().config
    result = proto.ConfigProto(allow_soft_placement=True)
    if settings.device == "cpu":
        result.device_count["GPU"] = 0
        cpus = [int(match[1]) for device in devices if (match := _LOGICAL_CPU.fullmatch(device))]
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
    """Return a function of the arrays to feed that runs all ops in the calling thread.

    `fetches` may contain tensors and ops; only tensors are returned.
    """
    parts = start_tensorflow()
    operation = parts.ops.Operation
    options = parts.config.CallableOptions(
        feed=[tensor.name for tensor in fed],
        fetch=[fetch.name for fetch in fetches if not isinstance(fetch, operation)],
        target=[fetch.name for fetch in fetches if isinstance(fetch, operation)],
        run_options=parts.config.RunOptions(inter_op_thread_pool=-1),
    )
    return session._make_callable_from_options(options)


def gpu_options(config: Any) -> dict[str, Any]:
    """Return the session's GPU options; empty if the session sees no GPU."""
    if config.device_count.get("GPU") == 0:
        return {}
    autotune = os.environ.get("TF_CUDNN_USE_AUTOTUNE", "1")
    return {
        "visible": config.gpu_options.visible_device_list or "all",
        "memory_growth": config.gpu_options.allow_growth,
        "cudnn_autotune": autotune.lower() not in ("0", "false"),
    }
