"""What public functions take: models, data, preprocessing and labels in every form."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from deploykit.freezing.interface import Source
from deploykit.freezing.open_model import OpenedModel
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.protos import GraphDef
from deploykit.verification.samples import Samples

if TYPE_CHECKING:
    import tensorflow as tf
    from numpy.typing import ArrayLike

PathLike: TypeAlias = str | os.PathLike[str]
"""The path of a file or folder."""
ModelLike: TypeAlias = Union[
    PathLike, Source, OpenedModel, Graph, GraphDef, "tf.keras.Model", "tf.Module"
]
"""A SavedModel folder, a checkpoint, a Keras or GraphDef file, or a model in memory."""
ModelsLike: TypeAlias = ModelLike | Sequence[ModelLike] | Mapping[str, ModelLike]
"""One model, a list of models, or models by name."""
DataLike: TypeAlias = Union[PathLike, Samples, Mapping[str, "ArrayLike"], "tf.data.Dataset"]
"""A folder or file of samples, arrays by input name (samples on the first axis), or a dataset."""
PreprocessLike: TypeAlias = PathLike | Mapping[str, Any]
"""A JSON file, what it holds, or a range of pixel values such as `0..1`."""
LabelsLike: TypeAlias = PathLike | Sequence[str]
"""A text file with the name of a class in each line, or the names."""
