"""A SavedModel that returns what it is given, of each datatype of the Open Inference Protocol."""

from pathlib import Path

from deploykit.serving.protocol.open_inference import TYPES


def echo(folder: Path, version: int = 1) -> Path:
    """Write it with three signatures; return its folder.

    `serving_default` takes an input for each datatype, named in lower case, of any number of rows
    of two; `typed` takes all but FP16 and BF16, which have no typed contents; `swapped` takes FP32
    and returns the two columns in turn.
    """
    import tensorflow as tf

    def identity(**tensors):
        return {f"{name}_out": tf.identity(tensor) for name, tensor in tensors.items()}

    specs = {
        name.lower(): tf.TensorSpec([None, 2], getattr(tf, type_), name=name.lower())
        for name, type_ in TYPES.items()
    }
    typed = {name: spec for name, spec in specs.items() if name not in ("fp16", "bf16")}
    module = tf.Module()
    module.echo = tf.function(identity)
    module.swap = tf.function(lambda x: {"y": tf.reverse(x, [1])})
    tf.saved_model.save(
        module,
        str(folder / str(version)),
        {
            "serving_default": module.echo.get_concrete_function(**specs),
            "typed": module.echo.get_concrete_function(**typed),
            "swapped": module.swap.get_concrete_function(tf.TensorSpec([None, 2], name="x")),
        },
    )
    return folder
