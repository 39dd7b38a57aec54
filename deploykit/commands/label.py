"""Say what an image shows."""

import click

from deploykit import options
from deploykit.interface import Interface


@click.command()
@click.argument("image")
@click.option("--model", required=True, metavar="MODEL", help="Model that scores the image.")
@click.option("--labels", required=True, metavar="FILE", help="Names of the classes, one a line.")
@click.option("--input_mean", "--input-mean", "mean", type=float, default=0.0, show_default=True,
              metavar="MEAN", help="Taken from each pixel.")  # fmt: skip
@click.option("--input_std", "--input-std", "std", metavar="STD",
              type=click.FloatRange(min=0, min_open=True),
              help="What each pixel is then divided by [default: 255; 1 for a model that takes "
              "whole numbers].")  # fmt: skip
@click.option("--input_height", "--input-height", "height", type=click.IntRange(min=1),
              metavar="PIXELS",
              help="Height to resize to [default: the model's, or 299].")  # fmt: skip
@click.option("--input_width", "--input-width", "width", type=click.IntRange(min=1),
              metavar="PIXELS",
              help="Width to resize to [default: the model's, or 299].")  # fmt: skip
@click.option("--top", type=click.IntRange(min=1), default=5, show_default=True, metavar="K",
              help="Show this many classes.")  # fmt: skip
@options.classifier
@options.result_file
@options.limits
@options.everywhere
def label(
    image: str,
    model: str,
    labels: str,
    mean: float,
    std: float | None,
    height: int | None,
    width: int | None,
    top: int,
    interface: Interface,
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Name what an image shows, with a model and its labels.

    IMAGE is a JPEG, PNG, BMP or GIF file. It is resized to the size that the model takes
    (bilinear, as label_image does), and each pixel x becomes (x - mean) / std.
    """
    from deploykit.freezing import model_bytes
    from deploykit.labelling import (
        image_input,
        lines,
        predictions,
        read_image,
        read_labels,
        scores,
    )
    from deploykit.report import Report, progress, show

    report = Report("label", model)
    read_image(image)  # what is wrong with it is said before the model is read
    names = read_labels(labels)
    graph = interface.frozen(model)
    report.of(graph)
    report.bytes_in = model_bytes(model)
    taken_as = image_input(graph, height=height, width=width, mean=mean, std=std)
    with progress("label"):
        found = scores(graph, image, taken_as)
    report.more = {"image": image, "labels": labels, "predictions": predictions(found, names, top)}
    text = lines(report.more["predictions"])
    show(report, as_json, text=text, output=output, force=force)
