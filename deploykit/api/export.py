"""A trained model becomes a version that TensorFlow Serving loads."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from deploykit.exporting.export import Exported, ExportOptions, export_model
from deploykit.freezing.interface import source_of
from deploykit.photos.class_names import labels_from
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

    With `preprocess`, what becomes of photos is put in front of the model. `serving_default` then
    takes them as files, strings [N] called `bytes`; the signature `pixels` takes decoded ones,
    uint8 [N, height, width, channels]; and `tensors` takes what the model itself does. With
    `labels`, `serving_default` and `pixels` also give `classes` and `scores`, [N, 5], the best
    first, and the signature `classify` gives the same for tf.Examples with a feature `bytes`.

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
    if isinstance(how.labels, str | os.PathLike):
        how = replace(how, labels=labels_from(how.labels))
    with working("export"):
        return export_model(source, Path(base_dir), how)
