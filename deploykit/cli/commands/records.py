"""Write data as TFRecord shards, and check them."""

import click

from deploykit.api.record_options import COMPRESSIONS, ON_ERROR, RecordOptions
from deploykit.cli import options
from deploykit.cli.options.types import Finite, PathName
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


_which = click.option("--name", metavar="NAME", help="Which records, where DIR has several.")
_processes = click.option("--processes", type=click.IntRange(1, 1024), metavar="N",
                          help="Processes [default: one for each core].")  # fmt: skip


@records.command()
@click.argument("sources", type=PathName(), metavar="SOURCE...", nargs=-1, required=True)
@click.argument("folder", type=PathName("DIR"))
@click.option("--from", "kind", type=click.Choice(KINDS), help="What the source is [default: what "
              "its content shows].")  # fmt: skip
@click.option("--name", metavar="NAME", help="What the shards are called: "
              "NAME-00003-of-00010.tfrecord; those of a folder of CIFAR: NAME-train, "
              "NAME-validation and NAME-test [default: data; train, validation and "
              "test].")  # fmt: skip
@click.option("--label-column", "label", metavar="NAME|NUMBER", help="Column of the label, counted "
              "from 0, or the array of a .npz file; none: no label [default: the last column; the "
              "array label or labels].")  # fmt: skip
@click.option("--labels", type=PathName("FILE.csv"), help="File name and label of each image "
              "[default: folders are classes].")  # fmt: skip
@click.option("--raw", is_flag=True, help="Keep the pixels of images, decoded, not their files.")
@click.option("--shard-size", type=Finite(min=0, min_open=True), default=RecordOptions.shard_size,
              show_default=True, metavar="MB", help="About how large a shard is.")  # fmt: skip
@click.option("--compression", type=click.Choice(COMPRESSIONS), default=RecordOptions.compression,
              show_default=True, help="Of the shards.")  # fmt: skip
@_processes
@click.option("--on-error", type=click.Choice(ON_ERROR), default=RecordOptions.on_error,
              show_default=True, help="What becomes of an item that is wrong; skipped ones are "
              "counted.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace existing records of this name.")
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
    files (MNIST), or files of CIFAR. The folder of CIFAR's archive becomes records named train,
    validation (data_batch_5 of CIFAR-10) and test; DIR/train is then what other commands take as
    --data. The shards are the same bytes however many processes write
    them. Beside them lies NAME.index.json: features, records, and the SHA-256 of each shard.
    Records keep the order of the source, so images lie together by class: shuffle to train on them.

    A run that was interrupted is taken up by the same command; what was finished stays.
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


@records.command()
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


@records.command()
@click.argument("folder", type=PathName("DIR"))
@_which
@_processes
@options.everywhere
def verify(folder: str, name: str | None, processes: int | None, as_json: bool) -> None:
    """Check every record, and the shards against their index.

    Exits with 5 where a record's checksum is wrong, or a shard is cut short, changed, missing or
    not listed. Without an index, a shard that was cut between two records looks whole.
    """
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.text.results.records import verification_lines

    report = Report("records verify", folder)
    found = deploykit.verify_records(folder, name=name, processes=processes)
    report.bytes_in = found.bytes
    report.more = found.document()
    show(report, as_json, text=verification_lines(found))
    found.check()
