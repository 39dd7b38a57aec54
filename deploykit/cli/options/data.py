"""What a model is run on: made-up values, arrays, or files behind a pipeline."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from deploykit.api.comparison import Comparison
from deploykit.cli.options.grouping import as_one
from deploykit.cli.options.types import Counts, Finite, Names, Range, Shape


@dataclass(frozen=True)
class Piping:
    """What is run behind a pipeline over files, besides a frozen graph's outputs."""

    fetches: Sequence[str] = ()
    init: Sequence[str] = ()
    wait_ms: float | None = None
    preprocess: str | None = None
    on_error: str = "stop"
    shuffle: bool = False
    cache: str | None = None
    buckets: Sequence[int] = ()
    private_threads: int | None = None
    workers: int | None = None
    address: str | None = None

    @property
    def given(self) -> bool:
        """Whether any of it was asked for."""
        return self != Piping()

    @property
    def for_tfdata(self) -> bool:
        """Whether any of it is for tf.data alone."""
        return bool(self.cache or self.buckets or self.private_threads or self.served)

    @property
    def served(self) -> bool:
        """Whether a tf.data service reads."""
        return self.workers is not None or self.address is not None

    def arguments(self) -> dict[str, Any]:
        """Return it as `measure_input` takes it. FileError, GraphError: no such preprocessing."""
        from deploykit.input.preprocessing import load_preprocessing

        return {
            "fetches": tuple(self.fetches),
            "init": tuple(self.init),
            "wait_ms": self.wait_ms,
            "preprocessing": None
            if self.preprocess is None
            else load_preprocessing(self.preprocess),
            "on_error": self.on_error,
            "shuffle": 0 if self.shuffle else None,
            "cache": self.cache or "",
            "buckets": tuple(sorted(self.buckets)),
            "private_threads": self.private_threads,
        }


@dataclass(frozen=True)
class Feeding:
    """What a model is run on: data, or made-up values; and ops that may act on files."""

    shapes: Sequence[tuple[str, tuple[int, ...]]] = ()
    data: str | None = None
    input_range: tuple[float, float] = (-1.0, 1.0)
    allowed_ops: Sequence[str] = ()

    def arguments(self) -> dict[str, Any]:
        """Return shapes, data and range as `batches` takes them. FileError: data are not there."""
        from deploykit.storage.files import load_data

        return {
            "shapes": dict(self.shapes),
            "data": None if self.data is None else load_data(self.data),
            "input_range": self.input_range,
        }


preprocess = click.option(
    "--preprocess",
    metavar="FILE.json",
    help="What becomes of the features of files [default: what the inputs ask for].",
)


comparison = as_one(
    "comparison",
    Comparison,
    click.option("--data", metavar="DATA", help="Samples to run both graphs on: a .npz file of "
                 "arrays by input name, or a folder of TFRecords, images or CSV files; with "
                 "labels, accuracy is shown too [default: made up, seed 0]."),
    preprocess,
    click.option("--input-range", type=Range(), default="-1,1", show_default=True,
                 help="Range of made-up float inputs."),
    click.option("--allow-op", "allowed_ops", metavar="OP", multiple=True,
                 help="Run this op although it acts on files or processes; may be repeated."),
)  # fmt: skip


_shapes = click.option("--shape", "shapes", type=Shape(), multiple=True,
                       help="Sizes of an input that the model leaves open; may be "
                       "repeated.")  # fmt: skip


_made_up = (
    click.option("--input-range", type=Range(), default="-1,1", show_default=True,
                 help="Range of made-up float inputs."),
    click.option("--allow-op", "allowed_ops", metavar="OP", multiple=True,
                 help="Run this op although it acts on files or processes; may be repeated."),
)  # fmt: skip


feeding = as_one(
    "feeding",
    Feeding,
    _shapes,
    click.option("--data", metavar="FILE.npz", help="Arrays by input name to run on, sample by "
                 "sample [default: made up, seed 0]."),
    *_made_up,
)  # fmt: skip


feeding_or_files = as_one(
    "feeding",
    Feeding,
    _shapes,
    click.option("--data", metavar="FILE.npz|DIR", help="Arrays by input name to run on, sample by "
                 "sample [default: made up, seed 0]; or a folder of TFRecords, CSV files or images "
                 "that are read meanwhile."),
    *_made_up,
)  # fmt: skip


piping = as_one(
    "piping",
    Piping,
    click.option("--fetch", "fetches", type=Names(), default=(), help="Ops or tensors to run in "
                 "place of the outputs, behind files; a training step, for example."),
    click.option("--init", type=Names(), default=(), help="Ops to run once before."),
    click.option("--simulate-accelerator", "wait_ms", type=Finite(min=0), metavar="MS",
                 help="Wait so long in place of computing, which takes no CPU."),
    preprocess,
    click.option("--on-error", type=click.Choice(("stop", "skip")), default="stop",
                 show_default=True, help="Whether a damaged image, in a file or a TFRecord, stops "
                 "the run or is left out."),
    click.option("--shuffle", is_flag=True, help="Let files, and records near each other, change "
                 "places, as for training."),
    click.option("--cache", metavar="memory|FILE", help="tf.data: keep what is parsed, so that "
                 "later epochs do not read."),
    click.option("--buckets", type=Counts(), default=(), help="tf.data: divide texts at these "
                 "lengths, so that a batch holds texts of like length and is filled up less."),
    click.option("--private-threads", type=click.IntRange(min=1), metavar="N", help="tf.data: read "
                 "on so many threads of its own, not on the model's."),
    click.option("--service", "workers", type=click.IntRange(min=1), metavar="N", help="Let so "
                 "many workers of tf.data service read and parse, each its share of the files; an "
                 "epoch is checked before. They listen on all interfaces."),
    click.option("--service-address", "address", metavar="HOST:PORT", help="Let the workers of a "
                 "tf.data service that runs already do so."),
)  # fmt: skip
