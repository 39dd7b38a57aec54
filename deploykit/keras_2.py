"""A model as Keras 2 described it, in the words of Keras 3, which no longer reads all of them."""

import inspect
from typing import Any

# Arguments that Keras 2 wrote for layers that never let one choose, and what it wrote.
_FIXED_ARGUMENTS = {"groups": 1, "noise_shape": None, "time_major": False}
_OF_TRAINING = ("_constraint", "_initializer", "_regularizer")
_MODELS = ("Functional", "Model", "Sequential")


def in_words_of_keras_3(config: Any) -> Any:
    """Change the JSON description of a model in place, and return it.

    Arguments that a layer no longer takes go. A model used as a layer of another had its own inputs
    as its first use; Keras 3 does not count that one.
    """
    waiting = [config]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            arguments = part.get("config")
            if isinstance(arguments, dict):
                _give_known_arguments(part.get("class_name"), arguments)
                _count_uses_from_zero(arguments)
            waiting += part.values()
    return config


def _give_known_arguments(class_name: Any, arguments: dict[str, Any]) -> None:
    import keras

    layer = getattr(keras.layers, str(class_name), None)
    if layer is None:
        return
    if str(class_name).startswith("SpatialDropout"):  # takes only what it uses
        arguments.pop("trainable", None)
    axis = arguments.get("axis")
    if class_name == "BatchNormalization" and isinstance(axis, list) and len(axis) == 1:
        arguments["axis"] = axis[0]
    known = inspect.signature(layer.__init__).parameters
    for name in [name for name in arguments if name not in known]:
        is_fixed = name in _FIXED_ARGUMENTS and arguments[name] == _FIXED_ARGUMENTS[name]
        if is_fixed or name.endswith(_OF_TRAINING):
            del arguments[name]


def _count_uses_from_zero(arguments: dict[str, Any]) -> None:
    """Lower the uses `[name, use, output, ...]` of a model's inner models by one."""
    layers = arguments.get("layers")
    if not isinstance(layers, list):
        return
    layers = [layer for layer in layers if isinstance(layer, dict)]
    models = {layer.get("name") for layer in layers if layer.get("class_name") in _MODELS}
    waiting = [arguments.get("output_layers"), *(layer.get("inbound_nodes") for layer in layers)]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, list):
            continue
        is_use = len(part) >= 3 and isinstance(part[0], str) and isinstance(part[1], int)
        if is_use and part[0] in models and part[1] > 0:
            part[1] -= 1
        waiting += part
