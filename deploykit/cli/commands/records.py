"""Write data as TFRecord shards, and check them."""

import click

from deploykit.api.record_options import COMPRESSIONS, ON_ERROR, RecordOptions
from deploykit.cli import options
from deploykit.cli.options.types import Finite, PathName, Whole
from deploykit.records import KINDS


class _Records(click.Group):
    """`records SOURCE DIR` means `records convert SOURCE DIR`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["convert", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Records)
def records() -> None:
    """Write data as TFRecord shards, and check them.

    `deploykit records SOURCE... DIR` is short for `deploykit records convert SOURCE... DIR`.
    """


_source = options.under("Source")
_which = click.option(
    "--name", metavar="NAME", help="Name of the records, if DIR holds records of several names."
)
_processes = click.option("--processes", type=Whole(1, 1024), metavar="N", help="Number of "
                          "processes, up to 1024 [default: one for each core].")  # fmt: skip


@records.command(
    cls=options.Helped,
    heading="Records",
    examples=(
        "deploykit records photos records",
        "deploykit records cifar-10-batches-py cifar",
        "deploykit records data.csv table --label-column 0 --name train",
    ),
)
@click.argument("sources", type=PathName(), metavar="SOURCE...", nargs=-1, required=True)
@click.argument("folder", type=PathName("DIR"))
@_source("--from", "kind", type=click.Choice(KINDS), help="Kind of the source [default: judged by "
         "its content].")  # fmt: skip
@click.option("--name", metavar="NAME", help="Name of the records, NAME-00003-of-00010.tfrecord; "
              "the folder of CIFAR becomes NAME-train, NAME-validation and NAME-test [default: "
              "data; for CIFAR train, validation and test].")  # fmt: skip
@_source("--label-column", "label", metavar="NAME|NUMBER", help="Column of the label by name or "
         "number from 0, or the array of a .npz file; none: there is no label [default: the last "
         "column; the array label or labels].")  # fmt: skip
@_source("--labels", type=PathName("FILE.csv"), help="CSV file with the file name and the label of "
         "each image [default: each folder of images is a class].")  # fmt: skip
@_source("--raw", is_flag=True, help="Store the decoded pixels of images instead of "
         "their files.")  # fmt: skip
@click.option("--shard-size", type=Finite(above=0), default=RecordOptions.shard_size,
              show_default=True, metavar="MB", help="Approximate size of a shard.")  # fmt: skip
@click.option("--compression", type=click.Choice(COMPRESSIONS), default=RecordOptions.compression,
              show_default=True, help="Compression of the shards.")  # fmt: skip
@_processes
@click.option("--on-error", type=click.Choice(ON_ERROR), default=RecordOptions.on_error,
              show_default=True, help="Whether a bad item ends the run or is skipped and "
              "counted.")  # fmt: skip
@options.output_option("--force", is_flag=True, help="Replace existing records of this name.")
@options.everywhere
def convert(
    sources: tuple[str, ...],
    folder: str,
    kind: str | None,
    name: str | None,
    label: str | None,
    labels: str | None,
    raw: bool,
    shard_size: float,
    compression: str,
    processes: int | None,
    on_error: str,
    force: bool,
    as_json: bool,
) -> None:
    """Write data as TFRecord shards.

    SOURCE is a folder of images, CSV files of numbers, lines of text between tabs, a .npz file, IDX
    files (MNIST), or files of CIFAR. The unpacked folder of CIFAR becomes records named train,
    validation (data_batch_5 of CIFAR-10) and test; other commands take one of them as --data
    DIR/train. The bytes of the shards do not depend on the number of processes. Beside them is
    NAME.index.json with the features, the number of records, and the SHA-256 of each shard. Records
    keep the order of the source, in which images are sorted by class: shuffle them for training.

    After an interruption, the same command continues; finished shards are kept.
    """
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.text.results.records import converted_lines

    report = Report("records convert", ", ".join(sources), folder)
    found = deploykit.convert_records(
        sources,
        folder,
        force=force,
        kind=kind,
        name=name,
        label=label,
        labels=labels,
        raw=raw,
        shard_size=shard_size,
        compression=compression,
        processes=processes,
        on_error=on_error,
    )
    report.bytes_out = found.bytes
    report.more = found.document()
    show(report, as_json, text=converted_lines(found, folder))


@records.command(cls=options.Helped, heading="Records")
@click.argument("folder", type=PathName("DIR"))
@_which
@options.everywhere
def inspect(folder: str, name: str | None, as_json: bool) -> None:
    """Show what records hold: features, counts, shards, and the first record."""
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.text.results.records import inspection_lines

    report = Report("records inspect", folder)
    found = deploykit.inspect_records(folder, name=name)
    report.bytes_in = None if found.index is None else found.index.bytes
    report.more = found.document()
    show(report, as_json, text=inspection_lines(found))


@records.command(cls=options.Helped, heading="Records")
@click.argument("folder", type=PathName("DIR"))
@_which
@_processes
@options.everywhere
def verify(folder: str, name: str | None, processes: int | None, as_json: bool) -> None:
    """Check every record, and the shards against their index.

    Exits with 5 if a record's checksum is wrong, or a shard is cut short, changed, missing or not
    listed, or if there is no record at all. Without an index, a shard that was cut between two
    records looks complete, which the result says.
    """
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.text.results.records import verification_lines

    report = Report("records verify", folder)
    found = deploykit.verify_records(folder, name=name, processes=processes)
    report.bytes_in = found.bytes
    report.more = found.document()
    report.check(found.check)
    show(report, as_json, text=verification_lines(found))
