"""Write data as TFRecord shards, and check them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deploykit.cli import options
from deploykit.cli.options.types import Finite
from deploykit.records import KINDS

if TYPE_CHECKING:
    from deploykit.records.conversion import Outcome


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
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.argument("folder", metavar="DIR")
@click.option("--from", "kind", type=click.Choice(KINDS), help="What the source is [default: what "
              "its content shows].")  # fmt: skip
@click.option("--name", default="data", show_default=True, metavar="NAME", help="What the shards "
              "are called: NAME-00003-of-00010.tfrecord.")  # fmt: skip
@click.option("--label-column", "label", metavar="NAME|NUMBER", help="Column of the label, counted "
              "from 0, or the array of a .npz file; none: no label [default: the last column; the "
              "array label or labels].")  # fmt: skip
@click.option("--labels", metavar="FILE.csv", help="File name and label of each image [default: "
              "folders are classes].")  # fmt: skip
@click.option("--raw", is_flag=True, help="Keep the pixels of images, decoded, not their files.")
@click.option("--shard-size", type=Finite(min=0, min_open=True), default=100,
              show_default=True, metavar="MB", help="About how large a shard is.")  # fmt: skip
@click.option("--compression", type=click.Choice(("none", "gzip")), default="none",
              show_default=True, help="Of the shards.")  # fmt: skip
@_processes
@click.option("--on-error", type=click.Choice(("stop", "skip")), default="stop", show_default=True,
              help="What becomes of an item that is wrong; skipped ones are counted.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace existing records of this name.")
@options.everywhere
def convert(
    sources: tuple[str, ...],
    folder: str,
    kind: str | None,
    name: str,
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
    files (MNIST), or files of CIFAR. The shards are the same bytes however many processes write
    them. Beside them lies NAME.index.json: features, records, and the SHA-256 of each shard.
    Records keep the order of the source, so images lie together by class: shuffle to train on them.

    A run that was interrupted is taken up by the same command; what was finished stays.
    """
    from deploykit.cli.report import Report, show
    from deploykit.hardware.machine import usable_cores
    from deploykit.records.conversion import Options, check_apart, convert
    from deploykit.records.open_source import open_source
    from deploykit.records.resuming import check_free
    from deploykit.text.progress import working

    target = Path(folder)
    check_apart(sources, target)
    check_free(target, name, force)
    report = Report("records convert", ", ".join(sources), folder)
    source = open_source(sources, kind=kind, label=label, labels=labels, raw=raw)
    how = Options(
        name=name,
        shard_bytes=max(1, round(shard_size * 1e6)),
        compression="" if compression == "none" else "GZIP",
        skip=on_error == "skip",
        processes=processes or usable_cores(),
    )
    with working("records") as advance:
        outcome = convert(source, target, how, force=force, advance=advance)
    report.bytes_out = outcome.index.bytes
    facts = {"skipped": outcome.skipped, "problems": outcome.problems, "kept": outcome.kept}
    report.more = {**_facts(outcome.index), **facts}
    show(report, as_json, text=_converted(outcome, folder))


@records.command()
@click.argument("folder", metavar="DIR")
@_which
@options.everywhere
def inspect(folder: str, name: str | None, as_json: bool) -> None:
    """Show what records hold: features, counts, shards, and the first record."""
    from deploykit.cli.report import Report, show
    from deploykit.records.verify_records import described, inspection
    from deploykit.text.tables import new_table, size

    report = Report("records inspect", folder)
    index, features, values = inspection(Path(folder), name)
    report.more = {} if index is None else _facts(index)
    rows = list(described(features, values))
    report.more |= {
        "features": {each: feature.document() for each, feature in sorted(features.items())},
        "sample": {row[0]: row[2] for row in rows},
    }
    table = new_table("feature", "type", "first record")
    for row in rows:
        table.add_row(*row)
    lines: list[Any] = [table]
    if index is None:
        lines.append(f"{folder} has no index: this is what its first record holds")
    else:
        report.bytes_in = index.bytes
        shards = new_table("shard", "records", "size")
        for shard in index.shards:
            shards.add_row(shard.file, str(shard.records), size(shard.bytes))
        lines.append(shards)
        if index.classes:
            listed = ", ".join(index.classes[:10])
            more = ", ..." if len(index.classes) > 10 else ""
            lines.append(f"{len(index.classes)} classes: {listed}{more}")
        lines.append(_summary(index))
    show(report, as_json, text=lines)


@records.command()
@click.argument("folder", metavar="DIR")
@_which
@_processes
@options.everywhere
def verify(folder: str, name: str | None, processes: int | None, as_json: bool) -> None:
    """Check every record, and the shards against their index.

    Exits with 5 where a record's checksum is wrong, or a shard is cut short, changed, missing or
    not listed. Without an index, a shard that was cut between two records looks whole.
    """
    from deploykit.cli.report import Report, show
    from deploykit.hardware.machine import usable_cores
    from deploykit.records.verify_records import check_folder
    from deploykit.text.progress import working
    from deploykit.transforms.core.errors import VerificationError

    report = Report("records verify", folder)
    with working("verify") as advance:
        index, found = check_folder(Path(folder), name, processes or usable_cores(), advance)
    problems = [each.problem for each in found if each.problem]
    count = sum(each.records for each in found)
    report.bytes_in = sum(each.bytes for each in found)
    report.more = {
        "indexed": index is not None,
        "records": count,
        "passed": not problems,
        "problems": problems,
        "shards": [vars(each) for each in found],
    }
    lines = [f"{len(found)} shards, {count} records: {len(problems) or 'none'} damaged"]
    if index is None:
        lines.append("there is no index, so a shard that was cut between two records looks whole")
    show(report, as_json, text=[*problems, *lines])
    if problems:
        more = f" ({len(problems)} such shards)" if len(problems) > 1 else ""
        raise VerificationError(f"{problems[0]}{more}")


def _facts(index: Any) -> dict[str, Any]:
    document: dict[str, Any] = index.document()
    return {name: each for name, each in document.items() if name not in ("format", "bytes")}


def _summary(index: Any) -> str:
    from deploykit.text.tables import size

    packed = ", gzip" if index.compression else ""
    return (
        f"{index.records} records '{index.name}' in {len(index.shards)} shards, "
        f"{size(index.bytes)}{packed}"
    )


def _converted(outcome: "Outcome", folder: str) -> list[str]:
    features = outcome.index.features.items()
    lines = [f"{name}: {feature}" for name, feature in sorted(features)]
    if outcome.skipped:
        lines.append(f"{outcome.skipped} items left out:")
        lines += [f"  {problem}" for problem in outcome.problems]
    kept = f" ({outcome.kept} were there already)" if outcome.kept else ""
    return [*lines, f"{folder}: {_summary(outcome.index)}{kept}"]
