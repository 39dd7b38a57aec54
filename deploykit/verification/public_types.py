"""What public functions take: models, data, preprocessing and labels in every form."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from deploykit.freezing.interface import Source
from deploykit.freezing.open_model import OpenedModel
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.protos import GraphDef
from deploykit.verification.samples import Samples

if TYPE_CHECKING:
    import tensorflow as tf
    from numpy.typing import ArrayLike

    LiveModel: TypeAlias = tf.keras.Model | tf.Module
    TensorFlowDataset: TypeAlias = tf.data.Dataset
else:  # TensorFlow is not imported for its types alone
    LiveModel = TensorFlowDataset = ArrayLike = Any

PathLike: TypeAlias = str | os.PathLike[str]
"""The path of a file or folder."""
ModelLike: TypeAlias = PathLike | Source | OpenedModel | Graph | GraphDef | LiveModel
"""A SavedModel folder, a checkpoint, a Keras or GraphDef file, or a model in memory."""
ModelsLike: TypeAlias = ModelLike | Sequence[ModelLike] | Mapping[str, ModelLike]
"""One model, a list of models, or models by name."""
DataLike: TypeAlias = PathLike | Samples | Mapping[str, ArrayLike] | TensorFlowDataset
"""A folder or file of samples, arrays by input name (samples on the first axis), or a dataset."""
PreprocessLike: TypeAlias = PathLike | Mapping[str, Any]
"""A JSON file, what it holds, or a range of pixel values such as `0..1`."""
LabelsLike: TypeAlias = PathLike | Sequence[str]
"""A text file with the name of a class in each line, or the names."""
