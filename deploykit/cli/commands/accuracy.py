"""Say how often models are right."""

from typing import Any

import click

from deploykit.cli import options
from deploykit.cli.options.types import PathName, Whole
from deploykit.freezing.interface import Interface, Source


@options.command(
    "Judging",
    requires=("tensorflow",),
    runs_graph=True,
    examples=(
        "deploykit accuracy fashion.pb --data models/fashion/test_1000.npz",
        "deploykit accuracy flowers.keras int8.pb --data photos/val --labels labels.txt",
    ),
)
@click.argument("models", type=PathName(), metavar="MODEL...", nargs=-1, required=True)
@options.interface
@options.data_option("--data", type=PathName("DATA"), required=True, help="Samples with labels: a "
                     ".npz file of arrays by input name and `labels`, a folder of TFRecords, CSV "
                     "files or photos, of which each folder is a class, or DIR/NAME where DIR "
                     "holds records of several names.")  # fmt: skip
@options.preprocess
@options.labels
@click.option("--metric", default="top1", show_default=True, metavar="NAME|MODULE:FUNCTION",
              help="top1, top5, mae, or a function of yours that takes the outputs by name and the "
              "labels.")  # fmt: skip
@options.data_option("--group-by", metavar="NAME", help="Also report each group of samples. NAME "
                     "is an array, column or feature with one text or integer per sample, or "
                     "`folder` for images. [default: `group`, or image folders that are not the "
                     "classes]")  # fmt: skip
@click.option("--worst", type=Whole(0), default=12, show_default=True, metavar="N",
              help="How many samples are listed of which the models say the most different "
              "things.")  # fmt: skip
@options.allowed_ops
@options.result_file
@options.limits
@options.everywhere
def accuracy(
    models: tuple[str, ...],
    interface: Interface,
    output: str | None,
    force: bool,
    as_json: bool,
    **how: Any,
) -> None:
    """Say how often models are right on labelled samples.

    Each MODEL runs on the same samples, in the engine that it was written for. Shares of right
    answers come with their 95 % confidence interval. The last MODEL is compared with the first,
    sample by sample: how much the metric changed, with its interval, how often both name the same
    class, how much noise its outputs have, and of which samples they say the most different
    things. Of one MODEL, its surest wrong answers are listed.

    Labels are class numbers, rows with a single 1 (one-hot), or names. Folders of photos are
    classes by their names in --labels, or in what is kept beside a MODEL; without either, in their
    sorted order, if there are as many as the model scores. Without labels, two models or more
    are only compared with each other.

    --json has small pictures of these samples too, if they are photos.
    """
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.text.results.accuracy import lines

    for path in models:
        if models.count(path) > 1:
            raise click.UsageError(f"{path} is given more than once")
    report = Report("accuracy", models[0])
    found = deploykit.accuracy([Source.of(each, interface) for each in models], **how)
    report.of(found.models[0].opened)
    report.more, report.fed = found.document(), found.fed
    show(report, as_json, text=lines(found), output=output, force=force)
