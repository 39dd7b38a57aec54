"""A trained model becomes a version that TensorFlow Serving loads."""

import os
from dataclasses import replace
from pathlib import Path

from deploykit.api.public import Command, public
from deploykit.exporting.export import Exported, ExportOptions, export_model
from deploykit.freezing.interface import source_of
from deploykit.photos.class_names import labels_from
from deploykit.text.progress import working
from deploykit.verification.public_types import ModelLike

DEFAULT = ExportOptions()


@public(
    Command(
        heading="Version",
        runs_graph=True,
        writes_result=False,
    ),
    models="model",
)
def export(
    model: ModelLike,
    base_dir: str | os.PathLike[str],
    how: ExportOptions = DEFAULT,
) -> Exported:
    """Write a model as a version that TensorFlow Serving loads.

    The folder BASE_DIR/NAME/N/ appears only when it is complete, under a new number, and is never
    replaced. The signatures of a SavedModel keep their names and those of their inputs and outputs;
    with `signature`, only that one is kept, as the default. Any other model gets one signature,
    serving_default, with the names of inputs and outputs in the graph. `signature_name`,
    `input_aliases` and `output_aliases` give it the names that existing clients send. With
    `preprocess`, serving_default takes photos as files (bytes), the signature pixels decoded ones
    (uint8), and the signature tensors what the model itself takes.

    Args:
        model: whatever `open_model` takes.
        base_dir: the folder of models.
        how: what the version is to be.

    FileError: the version exists, or cannot be written. GraphError: the model cannot be read, or
    its tensors do not suit the method. RefusedError: it acts on files or processes.

    Commands:
        deploykit export fashion.pb served --warmup models/fashion/test_1000.npz
        deploykit export fashion.pb served --preprocess 0..1
        deploykit export fashion.pb served --input-alias photo=images
        deploykit export fashion.pb served --method classify --manifests docker

    Example:
        >>> found = deploykit.export("fashion.keras", "models", name="fashion")
        >>> found.version
        1
    """
    source = source_of(model)
    if isinstance(how.labels, str | os.PathLike):
        how = replace(how, labels=labels_from(how.labels))
    with working("export"):
        return export_model(source, Path(base_dir), how)
