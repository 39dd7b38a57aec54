"""The messages of TensorFlow Serving's API, and those of TensorFlow that they hold.

They are those of the private pool, whether tensorflow-serving-api is installed or not: its
generated modules fail with other versions of protobuf than their own. Bytes go between both.
"""

from typing import Any

from google.protobuf import message_factory

from deploykit.transforms.core.protobuf.private_pool import private_messages, private_pool

MODEL_SERVICE = "tensorflow.serving.ModelService"
PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
_OF_TENSORFLOW = ("Example", "TensorProto")


def __getattr__(name: str) -> Any:
    """Return a message by name, such as `PredictRequest`."""
    package = "tensorflow" if name in _OF_TENSORFLOW else "tensorflow.serving"
    try:
        found = globals()[name] = private_messages(package, [name])[name]
    except KeyError:
        raise AttributeError(f"there is no message {package}.{name}") from None
    return found


def methods_of(service: str) -> dict[str, tuple[Any, Any]]:
    """Return the messages of a request and a response of each method of a service, by name."""
    message = message_factory.GetMessageClass
    methods = private_pool().FindServiceByName(service).methods
    return {each.name: (message(each.input_type), message(each.output_type)) for each in methods}
