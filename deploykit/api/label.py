"""label: classify an image."""

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
from deploykit.data.pipeline import log_inputs
from deploykit.data.preprocessing import (
    Preprocessing,
    declared_for,
    preprocessing_of,
    refuse_batch_axes,
)
from deploykit.importers.metadata_file import sidecar_path
from deploykit.importers.model_source import source_of
from deploykit.importers.open_model import ModelLike, OpenedModel, open_model
from deploykit.rendering.progress import working
from deploykit.storage.image_files import labels_from
from deploykit.transforms.common.documents import AsHtml, Hidden
from deploykit.transforms.common.errors import Error, GraphError, naming
from deploykit.transforms.common.flag import Flag
from deploykit.transforms.ir.graph import Graph
from deploykit.verification.samples import ImageLike
from deploykit.verification.synthetic.sample_inputs import names_of_inputs

logger = logging.getLogger("deploykit")

DEFAULT = LabelOptions()


@dataclass(frozen=True)
class ImageLabels(AsHtml):
    """The classes that a model predicts for an image."""

    predictions: Sequence[Mapping[str, Any]]
    """The classes with the highest scores, best first, with the keys class, label and score."""
    preprocessing: Preprocessing
    """The preprocessing of the image, in the format of a `preprocess` file."""
    graph: Hidden[Graph]
    """The graph that computed the scores."""
    image: str | None
    """The path of the image; None if it was an array."""
    labels: str | None
    """The file with the class names; None if they were passed as a sequence."""
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """The preprocessing of files for each input, as text."""


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

    IMAGE is a JPEG, PNG, GIF, BMP or WebP file. It is resized to the model's input size
    (bilinear, as in label_image), and each pixel x becomes (x - mean) / std. By default, mean
    is 0 and std is 255, as in label_image. If the model rescales its inputs itself, pixels are
    scaled to the range that the model expects, and a warning states both ranges. With
    `preprocess`, the image is prepared as in calibrate and benchmark. --json prints the
    preprocessing in the format of a `preprocess` file. The model metadata file X.pb.json may
    contain preprocessing and labels.

    Args:
        image: the path of a JPEG, PNG, GIF, BMP or WebP file, or an array of integers from 0 to
            255, with the shape [height, width] or [height, width, 1, 3 or 4].
        model: Model that classifies the image; required.
        labels: File with the class names, one per line [default: from the model metadata file].
        how: the preprocessing of the image, the tensors, and the number of classes.

    FileError: a file is missing or cannot be read. GraphError: the image cannot be decoded, or the
    model has no image input, no scores or no labels. RefusedError: an op acts on files or
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
        # Invalid files are reported before the model is read, which takes longer.
        photo = open_image(image)
        if how.preprocess is not None:
            if how.by_hand:
                raise Error("preprocess-or-input-options", option=how.by_hand[0])
            preprocessing_of(how.preprocess)
        given = None if labels is None else labels_from(labels)
        opened = open_model(source)
        opened.refuse_effects(how.allow_ops)
        graph = opened.frozen
        refuse_batch_axes(graph, how.preprocess, "deploykit label")
        names, declared = _completed(opened, given, how)
        if declared is None:
            image_input_ = image_input(graph, how)
        else:
            image_input_ = declared_input(graph, photo.name, declared)
        result = predictions(scores(graph, photo, image_input_), names, how.top)
        image_path = os.fspath(image) if isinstance(image, str | os.PathLike) else None
        fed = {} if image_path is None else image_input_.fed(photo.name)
        log_inputs(fed)
    return ImageLabels(
        predictions=result,
        preprocessing=image_input_.preprocessing(),
        graph=graph,
        image=image_path,
        labels=os.fspath(labels) if isinstance(labels, str | os.PathLike) else None,
        fed=fed,
    )


def _completed(
    opened: OpenedModel,
    given: Sequence[str] | None,
    how: LabelOptions,
) -> tuple[Sequence[str], Preprocessing | None]:
    """Return labels and preprocessing; missing ones come from the model metadata file.

    GraphError: there are no labels.
    """
    graph, source, used = opened.frozen, opened.source, []
    declared = None if how.preprocess is None else declared_for(graph, how.preprocess)
    if opened.files is not None:
        source = str(sidecar_path(opened.files.location.path))
    names = opened.about.labels if given is None else given
    if given is None:
        used.append("labels")
        if not names:
            raise GraphError("class-names-unknown", source=opened.source)
    if declared is None and not how.by_hand:
        with naming(source):
            known = declared_for(graph)
        inputs = {name for item in names_of_inputs(graph).values() for name in item}
        if known.range or inputs & known.inputs.keys():
            declared = known
            used.append("preprocessing")
    if used:
        logger.info("using %s from %s", " and ".join(used), source)
    return names, declared
