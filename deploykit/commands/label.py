"""Say what an image shows."""

import click

from deploykit import options
from deploykit.interface import Interface


@click.command()
@click.argument("image")
@click.option("--model", required=True, metavar="MODEL", help="Model that scores the image.")
@click.option("--labels", required=True, metavar="FILE", help="Names of the classes, one a line.")
@click.option("--input_mean", "--input-mean", "mean", type=float, metavar="MEAN",
              help="Taken from each pixel [default: 0].")  # fmt: skip
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
@click.option("--preprocess", metavar="FILE.json", help="What becomes of the image, declared as "
              "for calibrate and benchmark [default: by the options above].")  # fmt: skip
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
    mean: float | None,
    std: float | None,
    height: int | None,
    width: int | None,
    preprocess: str | None,
    top: int,
    interface: Interface,
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Name what an image shows, with a model and its labels.

    IMAGE is a JPEG, PNG, BMP or GIF file. It is resized to the size that the model takes
    (bilinear, as label_image does), and each pixel x becomes (x - mean) / std. With --preprocess,
    it becomes what calibrate and benchmark make of images instead. --json shows what was done as
    such a file declares it.
    """
    from deploykit.freezing import model_bytes
    from deploykit.input.preprocessing import load_preprocessing
    from deploykit.labelling import (
        declared_input,
        image_input,
        lines,
        predictions,
        read_image,
        read_labels,
        scores,
    )
    from deploykit.report import Report, progress, show

    given = {"mean": mean, "std": std, "height": height, "width": width}
    if preprocess is not None:
        for name, value in given.items():
            if value is not None:
                raise click.UsageError(f"give either --preprocess or --input_{name}")
    report = Report("label", model)
    read_image(image)  # what is wrong with it is said before the model is read
    names = read_labels(labels)
    declared = None if preprocess is None else load_preprocessing(preprocess)
    graph = interface.frozen(model)
    report.of(graph)
    report.bytes_in = model_bytes(model)
    if declared is None:
        taken_as = image_input(graph, height=height, width=width, mean=mean, std=std)
    else:
        taken_as = declared_input(graph, image, declared)
    with progress("label"):
        found = scores(graph, image, taken_as)
    report.more = {
        "image": image,
        "labels": labels,
        "preprocessing": taken_as.preprocessing().document(),
        "predictions": predictions(found, names, top),
    }
    text = lines(report.more["predictions"])
    show(report, as_json, text=text, output=output, force=force)
