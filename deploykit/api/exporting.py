"""export: write a model as a version that TensorFlow Serving loads.

The implementation is in `deploykit.exporting`. This module opens the model and reads labels and
preprocessing, so that the command and the Python function have the same arguments.
"""

import os
from dataclasses import replace
from pathlib import Path

from deploykit.api.public import Command, public
from deploykit.exporting.export import Exported, ExportOptions, export_model
from deploykit.importers.model_source import source_of
from deploykit.importers.open_model import ModelLike
from deploykit.rendering.progress import working
from deploykit.storage.image_files import labels_from

DEFAULT = ExportOptions()


@public(Command(heading="Version", runs_graph=True, writes_result=False), interface=())
def export(
    model: ModelLike,
    base_dir: str | os.PathLike[str],
    how: ExportOptions = DEFAULT,
) -> Exported:
    """Write a model as a version that TensorFlow Serving loads.

    Writes the folder BASE_DIR/NAME/N/ atomically, with a new version number N. Existing versions
    are never replaced. The signatures of a SavedModel keep their names, inputs and outputs. With
    `signature`, only that one is exported, as the default. Any other model gets the signature
    serving_default, with the names of inputs and outputs in the graph. `signature_name`,
    `input_aliases` and `output_aliases` rename the signature, its inputs and its outputs for
    existing clients. With `preprocess`, serving_default takes encoded image files (bytes), the
    signature pixels takes decoded images (uint8), and the signature tensors takes the model's own
    inputs.

    Args:
        model: any model that `open_model` accepts.
        base_dir: the folder that contains the models.
        how: the name, version, signatures and extra files of the exported version.

    FileError: the version exists, or cannot be written. GraphError: the model cannot be read, or
    its tensors do not match the method. RefusedError: an op acts on files or processes.

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
