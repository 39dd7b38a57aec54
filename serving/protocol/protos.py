"""The messages of TensorFlow Serving's API, and those of TensorFlow that they hold.

The classes are those of tensorflow-serving-api where the installed version of protobuf can load
them, else those of a private pool. Which of the two is decided by version before anything is
imported: a generated module that fails has already registered its file.
"""

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf import __version__ as protobuf_version

from deploykit.transforms.core.engines.tensorflow_wheel import package_folder
from deploykit.transforms.core.protobuf.private_pool import private_messages
from deploykit.transforms.core.protos import without_tensorflow_start

MODEL_SERVICE = "tensorflow.serving.ModelService"
PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
_GENERATED = re.compile(r"^# Protobuf Python Version: (\d+)\.(\d+)\.(\d+)", re.M)


def has_official_messages() -> bool:
    """Say whether the messages of tensorflow-serving-api can be loaded here."""
    spec = importlib.util.find_spec("tensorflow_serving")
    if spec is None or package_folder() is None:
        return False
    for folder in spec.submodule_search_locations or ():
        module = Path(folder) / "apis" / "prediction_service_pb2.py"
        if module.exists():
            return can_load(module.read_text(errors="replace"), protobuf_version)
    return False


def can_load(module: str, version: str) -> bool:
    """Say whether a version of protobuf loads the text of a generated module.

    Modules before protobuf 5.26 do not state their version; those with services fail with every
    protobuf that TensorFlow 2.16 or later accepts. Others load with their own version or a
    later one, up to the end of the next major version.
    https://protobuf.dev/support/cross-version-runtime-guarantee
    """
    found = _GENERATED.search(module)
    if found is None:
        return False
    generated = [int(number) for number in found.groups()]
    installed = [int(number) for number in re.findall(r"\d+", version)[:3]]
    return generated <= installed and installed[0] <= generated[0] + 1


__all__ = [
    "MODEL_SERVICE",
    "PREDICTION_SERVICE",
    "ClassificationRequest",
    "ClassificationResponse",
    "ClassificationResult",
    "Example",
    "GetModelMetadataRequest",
    "GetModelMetadataResponse",
    "GetModelStatusRequest",
    "GetModelStatusResponse",
    "InferenceResult",
    "Input",
    "ModelConfig",
    "ModelServerConfig",
    "ModelSpec",
    "ModelVersionStatus",
    "MultiInferenceRequest",
    "MultiInferenceResponse",
    "PredictRequest",
    "PredictResponse",
    "PredictionLog",
    "RegressionRequest",
    "RegressionResponse",
    "RegressionResult",
    "ReloadConfigRequest",
    "ReloadConfigResponse",
    "SignatureDefMap",
    "TensorProto",
]

if TYPE_CHECKING or has_official_messages():
    with without_tensorflow_start():
        from tensorflow.core.example.example_pb2 import Example
        from tensorflow.core.framework.tensor_pb2 import TensorProto
        from tensorflow_serving.apis.classification_pb2 import (
            ClassificationRequest,
            ClassificationResponse,
            ClassificationResult,
        )
        from tensorflow_serving.apis.get_model_metadata_pb2 import (
            GetModelMetadataRequest,
            GetModelMetadataResponse,
            SignatureDefMap,
        )
        from tensorflow_serving.apis.get_model_status_pb2 import (
            GetModelStatusRequest,
            GetModelStatusResponse,
            ModelVersionStatus,
        )
        from tensorflow_serving.apis.inference_pb2 import (
            InferenceResult,
            MultiInferenceRequest,
            MultiInferenceResponse,
        )
        from tensorflow_serving.apis.input_pb2 import Input
        from tensorflow_serving.apis.model_management_pb2 import (
            ReloadConfigRequest,
            ReloadConfigResponse,
        )
        from tensorflow_serving.apis.model_pb2 import ModelSpec
        from tensorflow_serving.apis.predict_pb2 import PredictRequest, PredictResponse
        from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog
        from tensorflow_serving.apis.regression_pb2 import (
            RegressionRequest,
            RegressionResponse,
            RegressionResult,
        )
        from tensorflow_serving.config.model_server_config_pb2 import (
            ModelConfig,
            ModelServerConfig,
        )
else:
    _OF_TENSORFLOW = ("Example", "TensorProto")
    globals().update(private_messages("tensorflow", _OF_TENSORFLOW))
    globals().update(private_messages("tensorflow.serving", {*__all__[2:]} - {*_OF_TENSORFLOW}))
