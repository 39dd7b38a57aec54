"""Take down which values the tensors of a model hold."""

import click

from deploykit import options
from deploykit.interface import Interface


@click.command()
@click.argument("model")
@options.interface
@click.option("--data", required=True, metavar="FILE.npz", help="Arrays by input name, samples "
              "along the first axis; 64 or more that are like those of real use.")  # fmt: skip
@click.option("--method", type=click.Choice(("minmax", "mse")), default="minmax",
              show_default=True, help="The whole range of the values, or the part of it on which 8 "
              "bits err least; mse runs the samples twice.")  # fmt: skip
@click.option("--batch", type=click.IntRange(min=1), metavar="N", help="Samples at once [default: "
              "what the model demands, or 8].")  # fmt: skip
@click.option("--allow-op", "allowed_ops", metavar="OP", multiple=True,
              help="Run this op although it acts on files or processes; may be "
              "repeated.")  # fmt: skip
@click.option("-o", "--output", metavar="FILE", help="File to write [default: beside the model, "
              "X.ranges.json].")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an existing output file.")
@options.limits
@options.everywhere
def calibrate(
    model: str,
    interface: Interface,
    data: str,
    method: str,
    batch: int | None,
    allowed_ops: tuple[str, ...],
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Take down which values the tensors of a model hold.

    Runs the model on the data and writes, for each float tensor, its smallest and largest value
    and each channel's mean and smallest value, to a JSON file that can be edited. Quantization
    spreads its 8 bits over these ranges.
    """
    from deploykit.files import check_output, default_output, load_data, write
    from deploykit.location import model_sha256
    from deploykit.quantization.calibration import calibrate, calibration_feeds
    from deploykit.report import Report, progress, show
    from transforms.core.errors import GraphError
    from transforms.core.side_effects import refuse_side_effects

    target = output or str(default_output(model, "ranges").with_suffix(".json"))
    check_output(target, force, model)
    report = Report("calibrate", model, target)
    graph = interface.open(model)
    refuse_side_effects(graph, allowed_ops)
    report.of(graph)
    try:
        feeds = calibration_feeds(graph, load_data(data), batch)
    except GraphError as error:
        raise (
            error if str(error).startswith(f"{data}:") else GraphError(f"{data}: {error}")
        ) from None
    with progress("calibrate") as advance:
        found = calibrate(
            graph,
            feeds,
            method=method,
            model_sha256=model_sha256(model) or "",
            advance=advance,
        )
    report.bytes_out = write(target, [found.ranges.text().encode()], force)
    report.more = found.document()
    show(report, as_json, text=found.lines(target))
