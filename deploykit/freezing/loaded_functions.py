"""A function that only TensorFlow's loader finds in a SavedModel, saved again with a signature."""

from collections.abc import Sequence
from typing import Any

from deploykit.freezing.resaving import Resaved, input_name, named_outputs, writing
from deploykit.transforms.core.errors import GraphError, failed


def resave(folder: str, path: str, tags: list[str], name: str) -> Resaved:
    """Write a function of a SavedModel as one of its own.

    This is done in a child process.
    GraphError: it cannot be loaded, or is not one function of tensors.
    """
    import tensorflow as tf

    try:
        loaded = tf.saved_model.load(path, tags)
        function = getattr(loaded, name)
    except Exception as error:  # TensorFlow raises whatever the damage happens to cause
        said = " ".join(str(error).split())[:300] or type(error).__name__
        raise failed(f"TensorFlow cannot load it: {said}", error) from None
    return write_function(folder, _inference(name, function.concrete_functions), loaded)


def write_function(folder: str, traced: Any, kept: Any) -> Resaved:
    """Write a traced function as a SavedModel.

    `kept` are the variables and tables that it reads, or what holds them.
    """
    import tensorflow as tf

    structure = traced.structured_input_signature
    leaves = tf.nest.flatten(structure, expand_composites=True)
    specs = [leaf for leaf in leaves if isinstance(leaf, tf.TensorSpec)]

    def answer(*tensors: Any) -> dict[str, Any]:
        given = iter(tensors)
        filled = [next(given) if isinstance(leaf, tf.TensorSpec) else leaf for leaf in leaves]
        args, kwargs = tf.nest.pack_sequence_as(structure, filled, expand_composites=True)
        answers = tf.nest.flatten(traced(*args, **kwargs), expand_composites=True)
        return named_outputs(map(tf.identity, answers))

    module = tf.Module()
    module.kept = kept  # which is saved too
    module.serve = tf.function(
        answer,
        input_signature=[
            tf.TensorSpec(spec.shape, spec.dtype, input_name(place))
            for place, spec in enumerate(specs)
        ],
        autograph=False,
    )
    with writing(folder):
        tf.saved_model.save(module, folder, signatures=module.serve)
    inputs = [spec.name or input_name(place) for place, spec in enumerate(specs)]
    outputs = traced.structured_outputs
    flat = tf.nest.flatten(outputs, expand_composites=True)
    keys = sorted(outputs) if isinstance(outputs, dict) and len(outputs) == len(flat) else None
    return Resaved(inputs, keys or list(named_outputs(flat)))


def _inference(name: str, traced: Sequence[Any]) -> Any:
    """Return the form of a function that answers: not training, and open to the most inputs.

    GraphError: it has several that take different inputs.
    """
    import tensorflow as tf

    def leaves(each: Any) -> list[Any]:
        return list(tf.nest.flatten(each.structured_input_signature, expand_composites=True))

    def covers(wide: Any, narrow: Any) -> bool:
        """Say whether an argument may be whatever another one may be."""
        if isinstance(wide, tf.TensorSpec) and isinstance(narrow, tf.TensorSpec):
            return wide.dtype == narrow.dtype and bool(narrow.shape.is_subtype_of(wide.shape))
        return not isinstance(wide, tf.TensorSpec) and not isinstance(narrow, tf.TensorSpec)

    def takes(each: Any, other: Any) -> bool:
        ours, others = leaves(each), leaves(other)
        return len(ours) == len(others) and all(map(covers, ours, others))

    answering = [each for each in traced if not any(leaf is True for leaf in leaves(each))]
    found = [each for each in answering if all(takes(each, other) for other in answering)]
    if not found:
        shown = "; ".join(
            ", ".join(str(leaf) for leaf in leaves(each) if isinstance(leaf, tf.TensorSpec))
            for each in answering[:4]
        )
        raise GraphError(
            f"its function '{name}' is traced for {len(traced)} kinds of inputs ({shown}); save "
            "the model again with signatures={'serving_default': function with one "
            "input_signature}"
        )
    return found[0]
