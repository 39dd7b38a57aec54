"""Which devices a benchmark runs on: what was asked for, and what TensorFlow sees."""

import contextlib
from collections.abc import Iterable, Sequence

from deploykit.benchmarking.settings import Settings
from deploykit.hardware.doctor import gpu_refusal
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.running.child import Worker

CPU = "/CPU:0"


def check_devices(asked: Iterable[str]) -> None:
    """See that the GPUs that are asked for are there, before anything is measured on the others.

    GraphError: they are not.
    """
    wanted = [each for each in asked if each != "cpu"]
    if wanted:
        seen = visible_gpus()
        if not seen:
            raise GraphError(f"--device {wanted[0]}: {gpu_refusal()}")
        for each in wanted:
            devices_for(each, seen)


def visible_gpus() -> list[str]:
    """Return what the GPUs are that TensorFlow sees, such as `NVIDIA H200`; a child is asked.

    CUDA_VISIBLE_DEVICES counts where the user has set it.
    """
    asked = Settings(device="all").environment
    with contextlib.closing(Worker("deploykit.benchmarking.devices:gpus", forced=asked)) as worker:
        found: list[str] = worker.created()
    return found


def gpus() -> list[str]:
    """Return what the GPUs are that TensorFlow sees in this process, without starting them."""
    import tensorflow as tf

    found = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(each) for each in found]
    return [each.get("device_name", "GPU") for each in details]


def devices_for(asked: str, seen: Sequence[str]) -> tuple[str, ...]:
    """Return TensorFlow's names of the devices for `cpu`, `gpu`, `gpu:N` or `all`.

    A process that is asked to run on one GPU is shown that GPU alone, which is its first.
    GraphError: there is no such GPU, or what is asked for is no device.
    """
    if asked == "cpu":
        return (CPU,)
    number = gpu_number(asked)
    if not seen:
        raise GraphError(f"TensorFlow sees no GPU, so --device {asked} cannot be measured")
    if number is None:
        return tuple(f"/GPU:{index}" for index in range(len(seen)))
    if number >= len(seen):
        raise GraphError(
            f"--device {asked}: TensorFlow sees {len(seen)} GPU{'s' if len(seen) > 1 else ''}, "
            f"so the last one is gpu:{len(seen) - 1}"
        )
    return ("/GPU:0",)


def gpu_number(asked: str) -> int | None:
    """Return N of `gpu:N`, 0 of `gpu`, None of `all` and `cpu`. GraphError: it is no device."""
    kind, colon, number = asked.partition(":")
    if asked in ("all", "cpu"):
        return None
    if kind != "gpu" or (colon and not number.isdecimal()):
        raise GraphError(f"there is no device '{asked}'; there are: cpu, gpu, gpu:N, all")
    return int(number or 0)
