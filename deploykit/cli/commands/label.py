"""Say what an image shows."""

import click

from deploykit.calling.call_options import TOP
from deploykit.cli import options
from deploykit.cli.options.types import PathName
from deploykit.freezing.interface import Interface, Source

_ROOT = "deploykit.root_dir"


def _keep_root(ctx: click.Context, param: click.Parameter, value: str) -> None:
    ctx.meta[_ROOT] = value


def _under_root(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return a path below --root_dir; as for label_image, an absolute one too."""
    root = ctx.meta[_ROOT]
    return value if value is None or not root else f"{root.rstrip('/')}/{value.lstrip('/')}"


def _one(first: str, value: str | None, second: str, other: str | None) -> str:
    """Return what was given in one of two ways. UsageError: it is not there, or twice."""
    found = [each for each in (value, other) if each is not None]
    if len(found) != 1:
        raise click.UsageError(f"give one of {first} and {second}")
    return found[0]


@click.command()
@click.option("--root_dir", "--root-dir", default="", type=PathName("DIR"), is_eager=True,
              expose_value=False, callback=_keep_root,
              help="Where image and model lie [default: here].")  # fmt: skip
@click.argument("image", type=PathName(), required=False, callback=_under_root)
@click.option("--image", "image_file", type=PathName("FILE"), callback=_under_root,
              help="The image, in place of IMAGE.")  # fmt: skip
@click.option("--model", type=PathName("MODEL"), callback=_under_root,
              help="Model that scores the image.")  # fmt: skip
@click.option("--graph", type=PathName("MODEL"), callback=_under_root, help="The same.")
@click.option("--labels", type=PathName("FILE"), help="Names of the classes, one a line "
              "[default: the model's].")  # fmt: skip
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
@click.option("--preprocess", type=PathName("FILE.json"), help="What becomes of the image, "
              "declared as for calibrate and benchmark [default: by the options "
              "above].")  # fmt: skip
@click.option("--top", "--num_top_predictions", "--num-top-predictions", "top",
              type=click.IntRange(min=1), default=TOP, show_default=True, metavar="K",
              help="Show this many classes.")  # fmt: skip
@options.classifier
@options.result_file
@options.limits
@options.everywhere
def label(
    image: str | None,
    image_file: str | None,
    model: str | None,
    graph: str | None,
    labels: str | None,
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

    Takes the flags of TensorFlow's label_image, and more.

    IMAGE is a JPEG, PNG, BMP or GIF file. It is resized to the size that the model takes
    (bilinear, as label_image does), and each pixel x becomes (x - mean) / std. With --preprocess,
    it becomes what calibrate and benchmark make of images instead. --json shows what was done as
    such a file declares it. The file X.pb.json beside a graph X.pb may hold that, and labels.
    """
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.text.answers import class_lines

    image = _one("IMAGE", image, "--image", image_file)
    model = _one("--model", model, "--graph", graph)
    report = Report("label", model)
    found = deploykit.label(
        image,
        Source.of(model, interface),
        labels,
        mean=mean,
        std=std,
        height=height,
        width=width,
        preprocess=preprocess,
        top=top,
    )
    report.of(found.graph)
    report.more = found.document()
    show(report, as_json, text=class_lines(found.predictions), output=output, force=force)
