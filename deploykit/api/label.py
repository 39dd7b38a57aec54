"""What an image shows."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from deploykit.api.public import Command, public
from deploykit.client.call_options import LabelOptions
from deploykit.client.label_image import (
    declared_input,
    image_input,
    open_image,
    predictions,
    scores,
)
from deploykit.data.pipeline import say
from deploykit.data.preprocessing import Preprocessing, declared_for, preprocessing_of
from deploykit.importers.metadata_file import sidecar_path
from deploykit.importers.model_source import source_of
from deploykit.importers.open_model import OpenedModel, open_model
from deploykit.rendering.progress import working
from deploykit.storage.image_files import labels_from
from deploykit.transforms.common.documents import AsHtml, Hidden
from deploykit.transforms.common.errors import Error, GraphError, naming
from deploykit.transforms.common.flag import Flag
from deploykit.transforms.ir.graph import Graph
from deploykit.verification.samples import ImageLike, ModelLike, names_of_inputs

logger = logging.getLogger("deploykit")

DEFAULT = LabelOptions()


@dataclass(frozen=True)
class ImageLabels(AsHtml):
    """What an image shows, by the scores of a model."""

    predictions: Sequence[Mapping[str, Any]]
    """The best classes, best first: class, label, score."""
    preprocessing: Preprocessing
    """What became of the image, as a file for `preprocess` declares it."""
    graph: Hidden[Graph]
    """What scored it."""
    image: str | None
    """Its path; None: it was an array."""
    labels: str | None
    """The file with the names of the classes; None: they were given."""
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """What became of files on the way to each input, in words."""


@public(Command(heading="Image and labels", runs_graph=True))
def label(
    image: Annotated[ImageLike, Flag(format="path", is_required=False)],
    model: Annotated[
        ModelLike, Flag("--model", metavar="MODEL", heading="Model", is_required=False)
    ],
    labels: Annotated[str | os.PathLike[str] | Sequence[str] | None, Flag("--labels")] = None,
    how: LabelOptions = DEFAULT,
) -> ImageLabels:
    """Classify an image with a model and its labels.

    Takes the flags of TensorFlow's label_image, and more.

    IMAGE is a JPEG, PNG, BMP or GIF file. It is resized to the model's input size (bilinear, as in
    label_image), and each pixel x becomes (x - mean) / std. Mean and std are 0 and 255, as in
    label_image. If the model rescales its inputs itself, pixels are scaled to the range that the
    model expects, and a warning states both ranges. With `preprocess`, the image is prepared as in
    calibrate and benchmark. --json shows the preprocessing in the form of such a file. The model
    metadata file X.pb.json may contain preprocessing and labels.

    Args:
        image: the path of a JPEG, PNG, BMP or GIF file, or an array [height, width] or [height,
            width, channels] of whole numbers from 0 to 255; of 1, 3 or 4 channels.
        model: Model that names the image.
        labels: File with the class names, one per line [default: from the model metadata file].
        how: what becomes of the image.

    FileError: a file is missing or cannot be read. GraphError: the image cannot be decoded, the
    model takes no image, gives no scores, or has no labels. RefusedError: it acts on files or
    processes.

    Commands:
        deploykit label photo.jpg --model model.pb --labels labels.txt
        deploykit label photo.jpg --model model.pb --top 3 --preprocess 0..1

    Example:
        >>> photo = (255 * np.load("test_1000.npz")["images"][0]).astype("uint8")
        >>> found = deploykit.label(photo, "fashion.keras", labels=list("0123456789"), top=1)
        >>> found.predictions[0]["label"]
        '9'
    """
    source = source_of(model)
    with working("label"):
        # What is wrong with these is said before the model is read.
        photo, declared = open_image(image), _declared(how)
        given = None if labels is None else labels_from(labels)
        opened = open_model(source)
        opened.refuse_effects(how.allow_ops)
        graph = opened.frozen
        if declared is not None:
            declared = declared_for(graph, how.preprocess)
        names, declared = _completed(given, declared, how, opened)
        if declared is None:
            taken_as = image_input(graph, how)
        else:
            taken_as = declared_input(graph, photo.name, declared)
        result = predictions(scores(graph, photo, taken_as), names, how.top)
        fed = {} if _path_of(image) is None else taken_as.fed(photo.name)
        say(fed)
    where = _path_of(image), _path_of(labels)
    return ImageLabels(result, taken_as.preprocessing(), graph, *where, fed)


def _declared(how: LabelOptions) -> Preprocessing | None:
    """Return the preprocessing of a file. Error: so is what becomes of the image by hand."""
    if how.preprocess is None:
        return None
    if how.by_hand:
        raise Error("preprocess-or-input-options", option=how.by_hand[0])
    return preprocessing_of(how.preprocess)


def _completed(
    names: Sequence[str] | None,
    declared: Preprocessing | None,
    how: LabelOptions,
    opened: OpenedModel,
) -> tuple[Sequence[str], Preprocessing | None]:
    """Return labels and preprocessing; what nobody gave is what the file beside the graph says.

    GraphError: there are no labels.
    """
    used = []
    if names is None:
        names = opened.about.labels
        used.append("labels")
        if not names:
            raise GraphError("class-names-unknown", source=opened.source)
    if declared is None and not how.by_hand:
        declared = _known_preprocessing(opened)
        if declared is not None:
            used.append("preprocessing")
    if used:
        logger.info("%s taken from %s", " and ".join(used), _known_from(opened))
    return names, declared


def _known_preprocessing(opened: OpenedModel) -> Preprocessing | None:
    """Return what the file beside a graph says becomes of what its input takes."""
    if opened.about.preprocessing is None:
        return None
    with naming(_known_from(opened)):
        declared = declared_for(opened.frozen)
    inputs = [name for names in names_of_inputs(opened.frozen).values() for name in names]
    return declared if declared.range or any(name in declared.inputs for name in inputs) else None


def _known_from(opened: OpenedModel) -> str:
    """Return how messages call what says more of a model than its nodes."""
    if opened.files is None:
        return opened.source
    return str(sidecar_path(opened.files.location.path))


def _path_of(given: object) -> str | None:
    return os.fspath(given) if isinstance(given, str | os.PathLike) else None
