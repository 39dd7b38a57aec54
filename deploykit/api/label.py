"""What an image shows."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deploykit.calling.call_options import LabelOptions
from deploykit.calling.label_image import (
    declared_input,
    image_input,
    open_image,
    predictions,
    scores,
)
from deploykit.freezing.interface import source_of
from deploykit.freezing.open_model import OpenedModel, open_model
from deploykit.freezing.sidecar import sidecar_path
from deploykit.input.pipeline import say
from deploykit.input.preprocessing import Preprocessing, declared_for, preprocessing_of
from deploykit.photos.class_names import labels_from
from deploykit.storage.parameters import with_options
from deploykit.text.progress import working
from deploykit.transforms.core.display.as_html import AsHtml
from deploykit.transforms.core.errors import Error, GraphError, naming
from deploykit.transforms.core.graph import Graph
from deploykit.verification.samples import names_of_inputs

logger = logging.getLogger("deploykit")

DEFAULT = LabelOptions()


@dataclass(frozen=True)
class ImageLabels(AsHtml):
    """What an image shows, by the scores of a model."""

    predictions: Sequence[Mapping[str, Any]]
    """The best classes, best first: class, label, score."""
    preprocessing: Preprocessing
    """What became of the image, as a file for `preprocess` declares it."""
    graph: Graph
    """What scored it."""
    image: str | None
    """Its path; None: it was an array."""
    labels: str | None
    """The file with the names of the classes; None: they were given."""
    fed: Mapping[str, str] = field(default_factory=dict)
    """What became of files on the way to each input, in words."""

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "image": self.image,
            "labels": self.labels,
            "preprocessing": self.preprocessing.document(),
            "predictions": list(self.predictions),
        }


def label(
    image: Any,
    model: Any,
    labels: str | os.PathLike[str] | Sequence[str] | None = None,
    how: LabelOptions = DEFAULT,
    **options: Any,
) -> ImageLabels:
    """Name what an image shows, with a model and its labels, as TensorFlow's label_image does.

    The image is resized to the size that the model takes (bilinear, as label_image does), and each
    pixel x becomes (x - mean) / std: by default label_image's 0 and 255, or the values that the
    model itself says it wants, with a warning. With `preprocess`, or where the file beside a frozen
    graph says what becomes of a photo, it becomes what `calibrate` and `benchmark` make of it
    instead.

    Args:
        image: the path of a JPEG, PNG, BMP or GIF file, or an array [height, width] or [height,
            width, channels] of whole numbers from 0 to 255; of 1, 3 or 4 channels.
        model: whatever `open_model` takes, with one input and one output of a score a class.
        labels: names of the classes in the order of the scores, or a file with one a line; default:
            what the file beside a frozen graph says.
        how: what becomes of the image.
        options: fields of `LabelOptions`, such as `mean` and `top`, or of `Source`, such as
            `outputs`.

    FileError: a file is missing or cannot be read. GraphError: the image cannot be decoded, the
    model takes no image, gives no scores, or has no labels. RefusedError: it acts on files or
    processes.

    Example:
        >>> photo = (255 * np.load("test_1000.npz")["images"][0]).astype("uint8")
        >>> found = deploykit.label(photo, "fashion.keras", labels=list("0123456789"), top=1)
        >>> found.predictions[0]["label"]
        '9'
    """
    how, source = with_options("label", options, how, source_of(model))
    with working("label"):
        # What is wrong with these is said before the model is read.
        photo, declared = open_image(image), _declared(how)
        given = None if labels is None else labels_from(labels)
        opened = open_model(source)
        opened.refuse_effects(how.allowed_ops)
        graph = opened.frozen
        if declared is not None:
            declared = declared_for(graph, how.preprocess)
        names, declared = _completed(given, declared, how, opened)
        if declared is None:
            taken_as = image_input(graph, how)
        else:
            taken_as = declared_input(graph, photo.name, declared)
        found = predictions(scores(graph, photo, taken_as), names, how.top)
        fed = {} if _path_of(image) is None else taken_as.fed(photo.name)
        say(fed)
    where = _path_of(image), _path_of(labels)
    return ImageLabels(found, taken_as.preprocessing(), graph, *where, fed)


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
    taken = []
    if names is None:
        names = opened.about.labels
        taken.append("labels")
        if not names:
            raise GraphError("class-names-unknown", source=opened.source)
    if declared is None and not how.by_hand:
        declared = _known_preprocessing(opened)
        if declared is not None:
            taken.append("preprocessing")
    if taken:
        logger.info("%s taken from %s", " and ".join(taken), _known_from(opened))
    return names, declared


def _known_preprocessing(opened: OpenedModel) -> Preprocessing | None:
    """Return what the file beside a graph says becomes of what its input takes."""
    if opened.about.preprocessing is None:
        return None
    with naming(_known_from(opened)):
        found = declared_for(opened.frozen)
    inputs = [name for names in names_of_inputs(opened.frozen).values() for name in names]
    return found if found.range or any(name in found.inputs for name in inputs) else None


def _known_from(opened: OpenedModel) -> str:
    """Return how messages call what says more of a model than its nodes."""
    if opened.files is None:
        return opened.source
    return str(sidecar_path(opened.files.location.path))


def _path_of(given: Any) -> str | None:
    return os.fspath(given) if isinstance(given, str | os.PathLike) else None
