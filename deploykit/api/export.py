"""A trained model becomes a version that TensorFlow Serving loads."""

import os
from pathlib import Path
from typing import Any

from deploykit.exporting.export import Exported, ExportOptions, export_model
from deploykit.freezing.interface import source_of
from deploykit.storage.parameters import with_options
from deploykit.text.progress import working

DEFAULT = ExportOptions()


def export(
    model: Any,
    base_dir: str | os.PathLike[str],
    how: ExportOptions = DEFAULT,
    **options: Any,
) -> Exported:
    """Write a model as `base_dir/name/version/`, which TensorFlow Serving loads.

    The signatures of a SavedModel keep their names and aliases, also those of a graph that was
    frozen from one; one that is named is kept alone, as the default one. Any other model gets one
    with the names of inputs and outputs in the graph.

    Args:
        model: whatever `open_model` takes.
        base_dir: the folder of models.
        how: what the version is to be.
        options: fields of `ExportOptions`, such as `name`, `version`, `method` and `warmup`, or of
            `Source`, such as `signature`.

    FileError: the version exists, or cannot be written. GraphError: the model cannot be read, or
    its tensors do not suit the method. RefusedError: it acts on files or processes.

    Example:
        >>> found = deploykit.export("fashion.keras", "models", name="fashion")
        >>> found.version
        1
    """
    source, how = with_options("export", options, source_of(model), how)
    with working("export"):
        return export_model(source, Path(base_dir), how)
