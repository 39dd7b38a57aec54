"""What a child process runs: a model, what it is fed, and how."""

from dataclasses import dataclass

from deploykit.benchmarking.settings import RunConfig
from deploykit.transforms.core.tensors import Array


@dataclass(frozen=True)
class Job:
    """What is run: a GraphDef file, what is fed and fetched, and arrays to feed, batch by batch."""

    model: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    batches: tuple[tuple[Array, ...], ...]
    settings: RunConfig
    devices: tuple[str, ...] = ()
    """TensorFlow's names of what it runs on, a tower each; default: what the settings ask for.
    From /CPU:1 on they are emulated."""
