"""Measured limits of the machine with the model's settings: a roofline.

An op takes at least as long as its arithmetic takes at the rate of a large matrix multiplication.
It also takes at least as long as its bytes take at the memory rate (Williams, Waterman, Patterson:
Roofline, 2009). TensorFlow's own kernels measure both rates, in the model's process and with its
threads.

On a GPU, the overhead of a call exceeds the time of a small op, so one call runs many ops. Arrays
have 1 GiB there, as caches hold 50 MB and more.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploykit.benchmarking.devices import config
from deploykit.benchmarking.run_config import RunConfig
from deploykit.transforms.common.errors import LimitError
from deploykit.transforms.runtime.session import sentence

_SIZES = (512, 1024, 2048, 4096, 8192)  # of matrices; more threads need larger ones
_MATMUL_SECONDS = 0.2  # per size; larger sizes whose single call takes longer are skipped
_MEMORY_SECONDS = 0.5
_ARRAY_BYTES = (64 << 20, 256 << 20)  # minimum, maximum
_GPU_ARRAY_BYTES = (1 << 30, 256 << 20)  # first attempt, and minimum if memory is short
_GPU_OPS = 20  # per call
_TYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True)
class Peak:
    """The measured limits of a machine, for one process."""

    gflops: float
    """Rate of a matrix multiplication in the model's precision, in GFLOP/s. An int8 op may exceed
    it."""
    gigabytes: float
    """Rate of memory reads and writes in GB/s. Cached data may exceed it."""
    matrix: int
    """Rows of the square matrices that gave the best rate."""
    array_bytes: int
    """Size of each array of the memory measurement, in bytes."""
    precision: str = "fp32"
    """Precision of the matrix multiplication."""
    by_precision: Mapping[str, float] = field(default_factory=dict)
    """GFLOP/s for each precision that the device supports."""

    def milliseconds(self, flops: int, moved: int, type_: str = "") -> tuple[float, str]:
        """Return the shortest possible time for this work, and its limit: compute or memory.

        `type_` is the compute type of a layer, such as `float16`; empty: the precision of the
        model.
        """
        rates = [rate for name, rate in self.by_precision.items() if _TYPES[name] == type_]
        fastest = max(rates) if rates and type_ != _TYPES[self.precision] else self.gflops
        compute, memory = flops / fastest / 1e6, moved / self.gigabytes / 1e6
        return (compute, "compute") if compute >= memory else (memory, "memory")


def peak(settings: RunConfig, float32: str = "fp32") -> Peak:
    """Measure the limits in a process that runs TensorFlow; takes about two seconds.

    `float32` is the precision of float32 matrices there. LimitError: out of memory.
    """
    import tensorflow as tf

    try:
        with (
            tf.Graph().as_default(),
            tf.compat.v1.Session(config=config(settings)) as session,
        ):
            on_gpu = settings.device != "cpu"
            memory_rate = _gpu_memory_rate if on_gpu else _memory_rate
            gigabytes, array_bytes = memory_rate(session)
            rates = {
                name: _matmul_rate(session, name, _GPU_OPS if on_gpu else 1)
                for name in _precisions(settings, float32)
            }
    except (tf.errors.OpError, MemoryError) as error:
        raise LimitError("peak-not-measured", reason=sentence(error)) from None
    chosen = settings.precision if settings.precision in rates else float32
    gflops, matrix = rates[chosen]
    by_precision = {name: rate for name, (rate, _) in rates.items()}
    return Peak(gflops, gigabytes, matrix, array_bytes, chosen, by_precision)


def _precisions(settings: RunConfig, float32: str) -> list[str]:
    """Return the precisions to measure: all of a GPU, on the CPU fp32 and a requested bf16."""
    if settings.device != "cpu":
        return list(dict.fromkeys(["fp32", float32, "fp16", "bf16"]))
    return ["fp32", *(["bf16"] if settings.precision == "bf16" else [])]


def _matmul_rate(session: Any, precision: str, count: int) -> tuple[float, int]:
    """Return the best rate in GFLOP/s, and the matrix size that gave it.

    A call runs `count` multiplications one after another.
    """
    import tensorflow as tf

    allow_tf32 = tf.config.experimental.enable_tensor_float_32_execution
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    best = (0.0, 0)
    try:
        if precision in ("fp32", "tf32"):
            allow_tf32(precision == "tf32")
        for size in _SIZES:
            filled = tf.random.uniform([size, size], seed=1) * (2 / size)  # products stay near 1
            matrix = _variable(session, tf.cast(filled, _TYPES[precision]))
            product = matrix
            for _ in range(count):
                product = tf.matmul(matrix, product)
            seconds = _best(session.make_callable(product.op), _MATMUL_SECONDS)
            best = max(best, (2 * count * size**3 / seconds / 1e9, size))
            if 8 * seconds > _MATMUL_SECONDS:  # twice the size takes eight times as long
                break
    finally:
        allow_tf32(before)
    return best


def _memory_rate(session: Any) -> tuple[float, int]:
    """Return the rate of `a += b` (two arrays read, one written) in GB/s, and the bytes per array.

    The sum is written in place: a new array would measure how the kernel allocates pages.
    """
    least, most = _ARRAY_BYTES
    size = min(max(4 * _last_level_cache(), least), most)
    return _sums(session, size, 1, _MEMORY_SECONDS), size


def _gpu_memory_rate(session: Any) -> tuple[float, int]:
    """Return the rate of the same sum on a GPU, and the bytes per array: as large as fit."""
    import tensorflow as tf

    size, least = _GPU_ARRAY_BYTES
    while True:
        try:
            return _sums(session, size, _GPU_OPS, _MEMORY_SECONDS), size
        except tf.errors.ResourceExhaustedError:
            size //= 2
            if size < least:
                raise


def _sums(session: Any, size: int, count: int, seconds: float) -> float:
    """Return the rate in GB/s of `count` sums per call, of arrays of `size` bytes."""
    import tensorflow as tf

    a, b = (_variable(session, tf.random.uniform([size // 4])) for _ in range(2))
    sums: list[Any] = []
    for _ in range(count):
        with tf.control_dependencies(sums[-1:]):
            sums.append(a.assign_add(b, read_value=False))
    return 3 * count * size / _best(session.make_callable(sums[-1]), seconds) / 1e9


def _variable(session: Any, value: Any) -> Any:
    import tensorflow as tf

    variable = tf.Variable(value, trainable=False)
    session.run(variable.initializer)
    return variable


def _best(call: Callable[[], Any], seconds: float) -> float:
    """Return the shortest time of a call in seconds, of at least two after a first one."""
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 2 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def _last_level_cache() -> int:
    """Return the cache size in bytes, or 0 if the kernel does not report it."""
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        number, unit = text[:-1], text[-1]
        if number.isdigit() and unit in "KM":
            sizes.append(int(number) << (10 if unit == "K" else 20))
    return max(sizes)
