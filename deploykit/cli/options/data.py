"""What a model is run on: made-up values, arrays, or files behind a pipeline."""

import click

from deploykit.api.comparison import Comparison
from deploykit.benchmarking.feeding import Feeding
from deploykit.cli.options.grouping import as_one, by_name
from deploykit.cli.options.headings import data_option, limit_option, under
from deploykit.cli.options.types import Counts, Finite, Names, PathName, Range, Shape, Whole
from deploykit.input.piping import Piping
from deploykit.transforms.core.engines.engines import MOST_BATCH, MOST_THREADS

preprocess = data_option(
    "--preprocess",
    type=PathName("FILE.json|LO..HI"),
    help="How the features of files become inputs, such as the size of images and the range of "
    "their values: a file, its JSON, or the range alone (0..1, -1..1, 0..255, photo=0..1) "
    "[default: what is kept beside the model, or what the model itself says].",
)


labels = data_option(
    "--labels",
    type=PathName("FILE"),
    help="Names of the model's classes, one a line, in the order of its scores: data that name "
    "classes, such as folders of photos, are understood by them [default: what is kept beside the "
    "model].",
)


allowed_ops = limit_option(
    "--allow-op",
    "allowed_ops",
    metavar="OP",
    multiple=True,
    help="Run this op although it reads or writes files or starts processes; may be repeated.",
)


_shapes = data_option("--shape", "shapes", type=Shape(), multiple=True, callback=by_name,
                      help="Shape of an input whose sizes the model leaves open; may be "
                      "repeated.")  # fmt: skip


_samples = data_option("--data", type=PathName("DATA"), help="Samples on which both graphs are "
                       "compared: a .npz file of arrays by input name, a folder of TFRecords, "
                       "images or CSV files, or DIR/NAME where DIR holds records of several names. "
                       "With labels, the accuracy is shown too [default: random values, always "
                       "the same].")  # fmt: skip
input_range = data_option("--input-range", type=Range(), default="-1,1", show_default=True,
                           help="Range of the random values for float inputs, where no data are "
                           "given.")  # fmt: skip
allow_unverified = data_option("--allow-unverified", is_flag=True, help="Continue if nothing "
                                "could be compared, for example because random values do not fit "
                                "the model, instead of exiting with 5.")  # fmt: skip


comparison = as_one(
    "comparison",
    Comparison,
    _samples,
    preprocess,
    labels,
    _shapes,
    input_range,
    allow_unverified,
    allowed_ops,
)
frozen_check = as_one(
    "comparison", Comparison, _samples, _shapes, input_range, allow_unverified, allowed_ops
)


_made_up = (input_range, allowed_ops)


feeding = as_one(
    "feeding",
    Feeding,
    _shapes,
    data_option("--data", type=PathName("FILE.npz"), help="Arrays by input name to run on, sample "
                "by sample [default: random values, always the same]."),
    *_made_up,
)  # fmt: skip


feeding_or_files = as_one(
    "feeding",
    Feeding,
    _shapes,
    data_option("--data", type=PathName("FILE.npz|DIR"), help="Arrays by input name to run on, "
                "sample by sample [default: random values, always the same]; or a folder of "
                "TFRecords, CSV files or images that are read while the model runs, or DIR/NAME "
                "where DIR holds records of several names."),
    *_made_up,
)  # fmt: skip


_piping = under("Input from files")
_built = (
    _piping("--shuffle", is_flag=True, help="Shuffle the files, and records that lie near each "
            "other, as for training."),
    _piping("--cache", type=PathName("memory|FILE"), help="tf.data: keep parsed records in memory "
            "or in a file, so that later epochs read no data files."),
    _piping("--buckets", type=Counts(MOST_BATCH), default=(), help="tf.data: batch texts with "
            "others of similar length, divided at these lengths, so that less padding is "
            "computed."),
    _piping("--private-threads", type=Whole(1, MOST_THREADS), metavar="N", help="tf.data: read "
            "on this many threads of its own instead of the model's."),
)  # fmt: skip
written_piping = as_one("piping", Piping, preprocess, *_built)
piping = as_one(
    "piping",
    Piping,
    _piping("--fetch", "fetches", type=Names(), default=(), help="Run these ops or tensors instead "
            "of the outputs, for example a training step."),
    _piping("--init", type=Names(), default=(), help="Run these ops once at the start."),
    _piping("--simulate-accelerator", "wait_ms", type=Finite(0), metavar="MS",
            help="Instead of running the model, wait this long for each batch; the CPU is then "
            "free to read."),
    preprocess,
    _piping("--on-error", type=click.Choice(("stop", "skip")), default=Piping.on_error,
            show_default=True, help="Whether a damaged image, in a file or a TFRecord, ends the "
            "run or is skipped."),
    *_built,
    _piping("--service", "workers", type=Whole(1, 256), metavar="N", help="Start this many tf.data "
            "service workers, each of which reads a share of the files; first, one epoch is "
            "checked. They listen on all network interfaces."),
    _piping("--service-address", "address", metavar="HOST:PORT",
            help="Use the workers of a tf.data service that is already running."),
    _piping("--pipeline", metavar="MODULE:FUNCTION", help="Measure a tf.data function of your own, "
            "which this runs: it is called with the path that --data gives, and with batch and "
            "epochs where it takes them. It is compared with --input tfdata, or, with --input "
            "pipeline, without --data, or with data that only it can read, measured alone."),
)  # fmt: skip
