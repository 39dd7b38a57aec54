"""Metadata of the machine: CPU, limits, memory, load and versions, read without TensorFlow."""

import math
import os
import platform
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from deploykit import __version__
from deploykit.transforms.engines.packages import tensorflow_wheel

FLAGS = (
    "avx", "avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16",
    "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16",
    "asimd", "asimddp", "asimdhp", "i8mm", "bf16", "sve", "sve2",
)  # fmt: skip
"""CPU flags that TensorFlow's kernels use."""
_VARIABLES = (
    "CUDA_", "DNNL_", "GLIBC_TUNABLES", "GOMP_", "KERAS_", "KMP_", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "MALLOC_", "NVIDIA_", "OMP_", "ONEDNN_", "TF_CPP_", "TF_CUDNN_", "TF_DISABLE_", "TF_ENABLE_",
    "TF_FORCE_", "TF_GPU_", "TF_NUM_", "TF_ONEDNN_", "TF_USE_", "TF_XLA_", "XLA_",
)  # fmt: skip
_NO_LIMIT = 1 << 60  # the kernel writes a huge number for "unlimited"


def machine() -> dict[str, Any]:
    """Return metadata of this machine as plain data; None: unknown, or no limit."""
    cpu = _cpu()
    limits = cgroup_limits()
    memory = psutil.virtual_memory()
    return {
        "platform": platform.platform(),
        "cpu": cpu["model"],
        "cores": cpu["cores"],
        "cpus": os.cpu_count(),
        "affinity": affinity(),
        "flags": cpu["flags"],
        "governor": _text(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        "cpu_limit": limits["cpus"],
        "memory_bytes": memory.total,
        "memory_available_bytes": memory.available,
        "memory_limit_bytes": limits["bytes"],
        "load": [round(item, 2) for item in os.getloadavg()],
        "versions": versions(),
    }


def affinity() -> list[int] | None:
    """Return the CPUs that this process may use; None: the platform does not report them."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def usable_cores() -> int:
    """Return the number of CPUs that this process may use, by its affinity and quota."""
    cores, quota = len(os.sched_getaffinity(0)), cgroup_limits()["cpus"]
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def environment() -> dict[str, str]:
    """Return the environment variables that affect TensorFlow."""
    return {k: v for k, v in sorted(os.environ.items()) if k.startswith(_VARIABLES)}


def versions() -> dict[str, str | None]:
    """Return the versions of installed packages; `wheel` is the distribution of TensorFlow."""
    wheel = tensorflow_wheel()
    names = ("keras", "numpy", "protobuf", "grpcio")
    return {
        "python": platform.python_version(),
        "tensorflow": wheel.version if wheel else None,
        "wheel": wheel.name if wheel else None,
        "deploykit": __version__,
        **{name: _version(name) for name in names},
    }


def cgroup_limits(
    root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> dict[str, Any]:
    """Return the CPUs and bytes that control groups allow this process; None: no limit.

    Every parent group may set a limit, and the smallest applies. Versions 1 and 2 of the interface
    are supported. A container sees its own group as the root.
    """
    values: dict[str, list[float]] = {"cpus": [], "bytes": []}
    for line in (_text(own) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        names = controllers.split(",")
        if not controllers:
            for mount in (root, root / "unified"):
                values["cpus"] += _each(mount, path, "cpu.max", _quota)
                values["bytes"] += _each(mount, path, "memory.max", float)
        if "memory" in names:
            values["bytes"] += _each(root / "memory", path, "memory.limit_in_bytes", float)
        if "cpu" in names:
            period = "cpu.cfs_period_us"
            values["cpus"] += _each(root / "cpu", path, "cpu.cfs_quota_us", float, period)
    cpus = min((value for value in values["cpus"] if value > 0), default=None)
    size = min((int(value) for value in values["bytes"] if value < _NO_LIMIT), default=None)
    return {"cpus": cpus, "bytes": size}


def _each(
    mount: Path,
    path: str,
    file: str,
    read: Callable[[str], float],
    unit: str = "",
) -> list[float]:
    """Return the values of a file in a group and in all its parents, divided by those of `unit`."""
    group = mount / path.lstrip("/")
    results = []
    for folder in (group, *group.parents):
        text = _text(folder / file)
        if text is not None and text.split()[0] != "max":
            divisor = float(_text(folder / unit) or 100_000) if unit else 1.0
            results.append(read(text) / divisor)
        if folder == mount:
            break
    return results


def _quota(text: str) -> float:
    quota, period = map(float, text.split())
    return quota / period


def _cpu(path: Path = Path("/proc/cpuinfo")) -> dict[str, Any]:
    """Return the CPU's name, its number of cores (not hardware threads), and the flags in FLAGS."""
    blocks = [_pairs(block) for block in (_text(path) or "").split("\n\n")]
    first = blocks[0]
    cores = {(block["physical id"], block["core id"]) for block in blocks if "core id" in block}
    flags = first.get("flags", first.get("Features", "")).split()
    return {
        "model": first.get("model name") or platform.processor() or platform.machine(),
        "cores": len(cores) or None,
        "flags": [flag for flag in FLAGS if flag in flags],
    }


def _pairs(text: str) -> dict[str, str]:
    lines = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
