"""Say what an image shows."""

import click

from deploykit.calling.call_options import TOP
from deploykit.cli import options
from deploykit.cli.options.types import Finite, PathName, Whole
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


@options.command(
    "Image and labels",
    requires=("tensorflow",),
    runs_graph=True,
    examples=("deploykit label boot.png --model fashion.pb --labels labels.txt --top 3",),
)
@click.option("--root_dir", "--root-dir", default="", type=PathName("DIR"), is_eager=True,
              expose_value=False, callback=_keep_root, help="Folder of image and model [default: "
              "the current one].")  # fmt: skip
@click.argument("image", type=PathName(), required=False, callback=_under_root)
@click.option("--image", "image_file", type=PathName("FILE"), callback=_under_root,
              help="The image, instead of the argument IMAGE.")  # fmt: skip
@options.model_option("--model", type=PathName("MODEL"), callback=_under_root,
                      help="Model that names the image.")  # fmt: skip
@options.model_option("--graph", type=PathName("MODEL"), callback=_under_root,
                      help="The same as --model.")  # fmt: skip
@click.option("--labels", type=PathName("FILE"), help="File with the names of the classes, one a "
              "line [default: the labels that are kept beside the model].")  # fmt: skip
@click.option("--input_mean", "--input-mean", "mean", type=float, metavar="MEAN",
              help="Number to subtract from each pixel [default: 0, or what the model "
              "says].")  # fmt: skip
@click.option("--input_std", "--input-std", "std", metavar="STD", type=Finite(above=0),
              help="Number to divide each pixel by after that [default: 255, or what the model "
              "says; 1 for a model that takes whole numbers].")  # fmt: skip
@click.option("--input_height", "--input-height", "height", type=Whole(1), metavar="PIXELS",
              help="Height of the resized image [default: the model's, or 299].")  # fmt: skip
@click.option("--input_width", "--input-width", "width", type=Whole(1), metavar="PIXELS",
              help="Width of the resized image [default: the model's, or 299].")  # fmt: skip
@click.option("--preprocess", type=PathName("FILE.json|LO..HI"), help="How the image becomes an "
              "input, in the form that calibrate and benchmark take too [default: by the "
              "options above].")  # fmt: skip
@click.option("--top", "--num_top_predictions", "--num-top-predictions", "top", type=Whole(1),
              default=TOP, show_default=True, metavar="K", help="How many classes are "
              "shown.")  # fmt: skip
@options.classifier
@options.allowed_ops
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
    allowed_ops: tuple[str, ...],
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Name what an image shows, with a model and its labels.

    Takes the flags of TensorFlow's label_image, and more.

    IMAGE is a JPEG, PNG, BMP or GIF file. It is resized to the size that the model takes
    (bilinear, as label_image does), and each pixel x becomes (x - mean) / std. Mean and std are
    label_image's 0 and 255, unless the model itself rescales what it is fed: then the values that
    it wants are fed, and a warning says both. With --preprocess,
    it is prepared as calibrate and benchmark prepare images. --json shows what was done, in the
    form of such a file. The file X.pb.json beside a graph X.pb may hold that, and the labels.
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
        allowed_ops=allowed_ops,
    )
    report.of(found.graph)
    report.more, report.fed = found.document(), found.fed
    show(report, as_json, text=class_lines(found.predictions), output=output, force=force)
