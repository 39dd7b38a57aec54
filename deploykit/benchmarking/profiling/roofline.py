"""What the machine can do at most, with the model's settings: a roofline.

A model's op takes at least as long as its arithmetic takes at the rate of a large matrix
multiplication, and as long as its bytes take at the rate of memory (Williams, Waterman, Patterson:
Roofline, 2009). Both rates are measured with TensorFlow's own kernels, in the process and with the
threads of the model.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploykit.benchmarking.settings import Settings

_SIZES = (512, 1024, 2048, 4096, 8192)  # of matrices; more threads need larger ones
_MATMUL_SECONDS = 0.2  # for one size; no larger one is tried that takes longer for one call
_MEMORY_SECONDS = 0.5
_ARRAY_BYTES = (64 << 20, 256 << 20)  # at least, at most


@dataclass(frozen=True)
class Peak:
    """The measured limits of a machine for one process."""

    gflops: float
    """Of a float32 matrix multiplication, GFLOP/s. An 8-bit op may go beyond."""
    gigabytes: float
    """Read from and written to memory, GB/s. What lies in a cache goes beyond."""
    matrix: int
    """The size of the square matrices that gave the best rate."""
    array_bytes: int
    """The size of each array that memory was measured with."""

    def milliseconds(self, flops: int, moved: int) -> tuple[float, str]:
        """Return how long so much takes at least, and which limit it is: compute or memory."""
        compute, memory = flops / self.gflops / 1e6, moved / self.gigabytes / 1e6
        return (compute, "compute") if compute >= memory else (memory, "memory")


def peak(settings: Settings) -> Peak:
    """Measure the limits, in a process that runs TensorFlow; takes about two seconds.

    LimitError: there is no memory for it.
    """
    import tensorflow as tf

    from deploykit.benchmarking.session_config import config
    from deploykit.transforms.core.errors import LimitError
    from deploykit.transforms.core.running.session import sentence

    try:
        with (
            tf.Graph().as_default(),
            tf.compat.v1.Session(config=config(settings)) as session,
        ):
            gigabytes, array_bytes = _memory_rate(session)
            gflops, matrix = _matmul_rate(session)
    except (tf.errors.OpError, MemoryError) as error:
        raise LimitError(
            f"the machine's peak cannot be measured: {sentence(error)}; "
            "a larger --memory-limit may help"
        ) from None
    return Peak(gflops, gigabytes, matrix, array_bytes)


def _matmul_rate(session: Any) -> tuple[float, int]:
    """Return the best rate in GFLOP/s, and the size of the matrices that gave it."""
    import tensorflow as tf

    best = (0.0, 0)
    for size in _SIZES:
        matrix = _variable(session, tf.random.uniform([size, size], seed=1))
        seconds = _best(session.make_callable(tf.matmul(matrix, matrix).op), _MATMUL_SECONDS)
        best = max(best, (2 * size**3 / seconds / 1e9, size))
        if 8 * seconds > _MATMUL_SECONDS:  # twice the size takes eight times as long
            break
    return best


def _memory_rate(session: Any) -> tuple[float, int]:
    """Return the rate of `a += b`, which reads two arrays and writes one, in GB/s, and their size.

    The sum is written in its place: a new array would measure how the kernel hands out pages.
    """
    import tensorflow as tf

    least, most = _ARRAY_BYTES
    size = min(max(4 * _last_level_cache(), least), most)
    a, b = (_variable(session, tf.random.uniform([size // 4])) for _ in range(2))
    seconds = _best(session.make_callable(a.assign_add(b, read_value=False)), _MEMORY_SECONDS)
    return 3 * size / seconds / 1e9, size


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
