"""Run a model over files of data."""

from typing import Any

import click

from deploykit.batch_inference.infer_options import ENGINES, FORMATS, ON_ERROR, InferOptions
from deploykit.cli import options
from deploykit.cli.options.types import PathName, Whole
from deploykit.freezing.interface import Source
from deploykit.transforms.core.engines.engines import MOST_BATCH

_workers = options.under("Workers")


@options.command(
    "Results",
    requires=("tensorflow",),
    examples=(
        "deploykit infer fashion.pb models/fashion/test_1000.npz answers --top 1",
        "deploykit infer shipped photos answers --top 5 --format csv",
        "deploykit infer int8.pb /mnt/records /mnt/answers \\\n"
        "      --engine ray --address 10.0.0.7:6379 --format parquet",
    ),
)
@options.source
@click.argument("data", type=PathName())
@click.argument("out", type=PathName())
@_workers("--engine", type=click.Choice(ENGINES), default=InferOptions.engine, show_default=True,
          help="What runs the workers: processes of this machine, or Ray, on this machine or on a "
          "cluster (pip install '.[ray]').")  # fmt: skip
@_workers("--address", metavar="local|HOST:PORT", help="Ray: a cluster that runs already, or "
          "local, which starts one on this machine for this run alone [default: RAY_ADDRESS, or "
          "local].")  # fmt: skip
@_workers("--processes", type=Whole(1, 100_000), metavar="N", help="Number of workers, each of "
          "which has the model and a core of its own [default: one for each core].")  # fmt: skip
@_workers("--batch", type=Whole(1, MOST_BATCH), metavar="N", help="Rows that a worker computes "
          "at once [default: what the model demands or was tuned for, or 32].")  # fmt: skip
@_workers("--retries", type=Whole(0), default=InferOptions.retries, show_default=True, metavar="N",
          help="How often a part of the data is begun again whose worker was lost.")  # fmt: skip
@_workers("--tuned", type=PathName("FILE"), help="Settings that deploykit tune wrote [default: "
          "what lies in the folder of a ship].")  # fmt: skip
@options.preprocess
@options.data_option("--on-error", type=click.Choice(ON_ERROR), default=InferOptions.on_error,
                     show_default=True, help="Whether a row that cannot be used, such as a damaged "
                     "photo, ends the run, or is left out and listed in the index.")  # fmt: skip
@click.option("--top", type=Whole(1), metavar="K", help="Write the K classes with the highest "
              "scores of the first output instead of the outputs.")  # fmt: skip
@click.option("--labels", type=PathName("FILE"), help="With --top: names of the classes, one a "
              "line, in the order of the scores [default: what is kept beside the "
              "model].")  # fmt: skip
@click.option("--format", type=click.Choice(FORMATS), default=InferOptions.format,
              show_default=True, help="Of the files that are written; parquet takes "
              "pip install '.[parquet]'.")  # fmt: skip
@click.option("--name", metavar="NAME", help="What the files are called: "
              "NAME-00003-of-00013.npz [default: as the data].")  # fmt: skip
@options.allowed_ops
@options.output_option("--force", is_flag=True, help="Replace results of this name that are of "
                       "another model, of other data or of other options.")  # fmt: skip
@options.limits
@options.everywhere
def infer(source: Source, data: str, out: str, as_json: bool, **how: Any) -> None:
    """Run a model over files of data, and write what it answers.

    DATA is a folder of TFRecords with their index, or DIR/NAME where it holds records of several
    names, a folder of photos or of CSV files, a CSV or Parquet file, or a .npz file of arrays by
    input name.
    It is cut into parts, of TFRecords the shards. Each worker takes the next part and writes its
    answers into the folder OUT as one file, whole or not at all, in which each row says
    which file and which row of DATA it is of. What a lost worker was at is done again. At the end,
    OUT/NAME.index.json lists all parts with their SHA-256, and the rows that were left out.

    After Ctrl-C or any other end, the same command goes on with the parts that are missing. On a
    cluster, all machines need deploykit, and see MODEL's results folder OUT and DATA under the same
    paths.
    """
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.text.results.inferred import lines

    report = Report("infer", source.model, out)
    found = deploykit.infer(source, data, out, InferOptions(**how))
    report.inputs, report.outputs = tuple(found.fed), tuple(found.outputs)
    report.more, report.fed = found.document(), found.fed
    show(report, as_json, text=lines(found))
