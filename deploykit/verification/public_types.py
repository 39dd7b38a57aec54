"""What public functions take: models, data, preprocessing and labels in every form."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from deploykit.freezing.interface import ModelSource
from deploykit.freezing.open_model import OpenedModel
from deploykit.transforms.core.display.documents import Documented
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.protos import GraphDef
from deploykit.verification.samples import Dataset

if TYPE_CHECKING:
    import tensorflow as tf
    from numpy.typing import ArrayLike

    InputFunction: TypeAlias = Callable[..., tf.data.Dataset[Any]]
    LiveModel: TypeAlias = tf.keras.Model[Any, Any] | tf.Module
    TensorFlowDataset: TypeAlias = tf.data.Dataset[Any]
else:  # TensorFlow is not imported for its types alone
    InputFunction = LiveModel = TensorFlowDataset = ArrayLike = Any

PathLike: TypeAlias = str | os.PathLike[str]
"""The path of a file or folder."""
ModelLike: TypeAlias = PathLike | ModelSource | OpenedModel | Graph | GraphDef | LiveModel
"""A SavedModel folder, a checkpoint, a Keras or GraphDef file, or a model in memory."""
ModelsLike: TypeAlias = ModelLike | Sequence[ModelLike] | Mapping[str, ModelLike]
"""One model, a list of models, or models by name."""
DataLike: TypeAlias = PathLike | Dataset | Mapping[str, ArrayLike] | TensorFlowDataset
"""A folder or file of samples, arrays by input name (samples on the first axis), or a dataset."""
ImageLike: TypeAlias = PathLike | ArrayLike
"""The path of a JPEG, PNG, BMP or GIF file, or its pixels [height, width, channels]."""
PreprocessLike: TypeAlias = PathLike | Mapping[str, Any]
"""A JSON file, what it holds, or a range of pixel values such as `0..1`."""
LabelsLike: TypeAlias = PathLike | Sequence[str]
"""A text file with the name of a class in each line, or the names."""
ResultLike: TypeAlias = PathLike | Documented | Graph | Mapping[str, object]
"""A result, its document, the JSON file that a command wrote of it, or the folder of `ship`."""
