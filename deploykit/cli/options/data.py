"""What a model is run on: made-up values, arrays, or files behind a pipeline."""

import click

from deploykit.api.comparison import Comparison
from deploykit.benchmarking.feeding import Feeding
from deploykit.cli.options.grouping import as_one, by_name
from deploykit.cli.options.types import Counts, Finite, Names, PathName, Range, Shape
from deploykit.input.piping import Piping

preprocess = click.option(
    "--preprocess",
    type=PathName("FILE.json"),
    help="What becomes of the features of files [default: what the inputs ask for].",
)


comparison = as_one(
    "comparison",
    Comparison,
    click.option("--data", type=PathName("DATA"), help="Samples to run both graphs on: a .npz file "
                 "of arrays by input name, or a folder of TFRecords, images or CSV files; with "
                 "labels, accuracy is shown too [default: made up, seed 0]."),
    preprocess,
    click.option("--input-range", type=Range(), default="-1,1", show_default=True,
                 help="Range of made-up float inputs."),
    click.option("--allow-op", "allowed_ops", metavar="OP", multiple=True,
                 help="Run this op although it acts on files or processes; may be repeated."),
)  # fmt: skip


_shapes = click.option("--shape", "shapes", type=Shape(), multiple=True,
                       callback=by_name, help="Sizes of an input that the model leaves open; may "
                       "be repeated.")  # fmt: skip


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
    click.option("--data", type=PathName("FILE.npz"), help="Arrays by input name to run on, sample "
                 "by sample [default: made up, seed 0]."),
    *_made_up,
)  # fmt: skip


feeding_or_files = as_one(
    "feeding",
    Feeding,
    _shapes,
    click.option("--data", type=PathName("FILE.npz|DIR"), help="Arrays by input name to run on, "
                 "sample by sample [default: made up, seed 0]; or a folder of TFRecords, CSV files "
                 "or images that are read meanwhile."),
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
    click.option("--on-error", type=click.Choice(("stop", "skip")), default=Piping.on_error,
                 show_default=True, help="Whether a damaged image, in a file or a TFRecord, stops "
                 "the run or is left out."),
    click.option("--shuffle", is_flag=True, help="Let files, and records near each other, change "
                 "places, as for training."),
    click.option("--cache", type=PathName("memory|FILE"), help="tf.data: keep what is parsed, so "
                 "that later epochs do not read."),
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
