"""How requests are put together, as a file of BatchingParameters says it."""

from dataclasses import dataclass
from pathlib import Path

from deploykit.serving.protocol.text_protos import ConfigError, parse
from deploykit.transforms.core.engines.engines import MOST_BATCH, MOST_THREADS

_MOST_MICROS = 3_600_000_000  # an hour
_BOUNDS = {
    "max_batch_size": (1, MOST_BATCH),
    "max_execution_batch_size": (1, MOST_BATCH),
    "max_enqueued_batches": (1, 1_000_000_000),
    "num_batch_threads": (1, MOST_THREADS),
    "batch_timeout_micros": (0, _MOST_MICROS),
}
"""What each number may be."""


@dataclass(frozen=True)
class Batching:
    """How requests are put together; threads: None is one a core."""

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int | None = None
    allowed_batch_sizes: tuple[int, ...] = ()
    pad_variable_length_inputs: bool = False
    enable_large_batch_splitting: bool = False
    max_execution_batch_size: int | None = None
    thread_pool_name: str = "batch_threads"
    """The label of the times in a queue, as in TensorFlow Serving; there is no pool to name."""

    @property
    def largest(self) -> int:
        """The largest batch that is run at once."""
        split = self.enable_large_batch_splitting and self.max_execution_batch_size
        return split or self.max_batch_size


def read_batching(path: Path) -> Batching:
    """Read a file of BatchingParameters. FileError, ConfigError: as `read_models`."""
    proto = parse(path, "BatchingParameters")
    given = {field.name: getattr(value, "value", value) for field, value in proto.ListFields()}
    given["allowed_batch_sizes"] = tuple(proto.allowed_batch_sizes)
    batching = Batching(**given)
    for name, (least, most) in _BOUNDS.items():
        value = getattr(batching, name)
        if value is not None and not least <= value <= most:
            raise ConfigError(
                "out-of-range", source=path, name=name, expected=f"{least} to {most}", got=value
            )
    if batching.largest > batching.max_batch_size:
        raise ConfigError(
            "batching-execution-size",
            source=path,
            largest=batching.largest,
            limit=batching.max_batch_size,
        )
    _check_allowed(path, batching)
    return batching


def _check_allowed(path: Path, batching: Batching) -> None:
    sizes = batching.allowed_batch_sizes
    if list(sizes) != sorted({size for size in sizes if size > 0}):
        raise ConfigError(
            "unexpected",
            source=path,
            what="allowed_batch_sizes",
            got=sizes,
            expected="positive numbers in increasing order",
        )
    if sizes and sizes[-1] != batching.largest:
        raise ConfigError(
            "batching-last-size", source=path, got=sizes[-1], expected=batching.largest
        )
