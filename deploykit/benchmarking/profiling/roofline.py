"""What the machine can do at most, with the model's settings: a roofline.

A model's op takes at least as long as its arithmetic takes at the rate of a large matrix
multiplication, and as long as its bytes take at the rate of memory (Williams, Waterman, Patterson:
Roofline, 2009). Both rates are measured with TensorFlow's own kernels, in the process and with the
threads of the model. On a GPU a call costs more than a small op takes, and what its cache of 50 MB
and more holds is not its memory's, so there many ops of a call share that, and arrays are of 1 GiB.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploykit.benchmarking.run_config import RunConfig

_SIZES = (512, 1024, 2048, 4096, 8192)  # of matrices; more threads need larger ones
_MATMUL_SECONDS = 0.2  # for one size; no larger one is tried that takes longer for one call
_MEMORY_SECONDS = 0.5
_ARRAY_BYTES = (64 << 20, 256 << 20)  # at least, at most
_GPU_ARRAY_BYTES = (1 << 30, 256 << 20)  # at first, and at least where its memory is less
_GPU_OPS = 20  # in a call
_TYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True)
class Peak:
    """The measured limits of a machine for one process."""

    gflops: float
    """Of a multiplication of matrices in the precision of the model, GFLOP/s. An 8-bit op may go
    beyond."""
    gigabytes: float
    """Read from and written to memory, GB/s. What lies in a cache goes beyond."""
    matrix: int
    """The size of the square matrices that gave the best rate."""
    array_bytes: int
    """The size of each array that memory was measured with."""
    precision: str = "fp32"
    """In which the matrices were multiplied."""
    by_precision: Mapping[str, float] = field(default_factory=dict)
    """The same rate for each precision that the device has."""

    def milliseconds(self, flops: int, moved: int, type_: str = "") -> tuple[float, str]:
        """Return how long so much takes at least, and which limit it is: compute or memory.

        `type_` is what a layer computes in, such as `float16`; empty: as most of the model does.
        """
        rates = [rate for name, rate in self.by_precision.items() if _TYPES[name] == type_]
        fastest = max(rates) if rates and type_ != _TYPES[self.precision] else self.gflops
        compute, memory = flops / fastest / 1e6, moved / self.gigabytes / 1e6
        return (compute, "compute") if compute >= memory else (memory, "memory")


def peak(settings: RunConfig, float32: str = "fp32") -> Peak:
    """Measure the limits, in a process that runs TensorFlow; takes about two seconds.

    `float32` is what float32 is multiplied in there. LimitError: there is no memory for it.
    """
    import tensorflow as tf

    from deploykit.benchmarking.devices import config
    from deploykit.transforms.common.errors import LimitError
    from deploykit.transforms.runtime.session import sentence

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
    """Return the precisions whose rates are measured: a GPU's all, the CPU's if it is asked for."""
    if settings.device != "cpu":
        return list(dict.fromkeys(["fp32", float32, "fp16", "bf16"]))
    return ["fp32", *(["bf16"] if settings.precision == "bf16" else [])]


def _matmul_rate(session: Any, precision: str, count: int) -> tuple[float, int]:
    """Return the best rate in GFLOP/s, and the size of the matrices that gave it.

    A call makes so many multiplications one after another.
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
    """Return the rate of `a += b`, which reads two arrays and writes one, in GB/s, and their size.

    The sum is written in its place: a new array would measure how the kernel hands out pages.
    """
    least, most = _ARRAY_BYTES
    size = min(max(4 * _last_level_cache(), least), most)
    return _sums(session, size, 1, _MEMORY_SECONDS), size


def _gpu_memory_rate(session: Any) -> tuple[float, int]:
    """Return the rate of the same sum on a GPU, and the size of the arrays: as large as fit."""
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
    """Return the rate in GB/s of so many sums in a call, of arrays of so many bytes."""
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
    """Return the shortest time of a call, in seconds, of two at least after a first one."""
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 2 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def _last_level_cache() -> int:
    """Return its size in bytes, 0 where the kernel does not tell."""
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        number, unit = text[:-1], text[-1]
        if number.isdigit() and unit in "KM":
            sizes.append(int(number) << (10 if unit == "K" else 20))
    return max(sizes)
