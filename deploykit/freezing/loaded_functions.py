"""A function that only TensorFlow's loader finds in a SavedModel, saved again with a signature."""

from collections.abc import Sequence
from dataclasses import replace
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
        raise failed(
            "runtime-failed", error, runtime="TensorFlow", action="load it", reason=said
        ) from None
    traced, notes = _inference(name, function.concrete_functions)
    return replace(write_function(folder, traced, loaded), notes=notes)


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


def _inference(name: str, traced: Sequence[Any]) -> tuple[Any, list[str]]:
    """Return the form of a function to use, and a note where others take more inputs.

    It does not train, takes the fewest inputs, and of each the most shapes. GraphError: several
    such forms take different inputs.
    """
    answering = [each for each in traced if not any(leaf is True for leaf in _leaves(each))]
    fewest = min((len(_specs(each)) for each in answering), default=0)
    least = [each for each in answering if len(_specs(each)) == fewest]
    found = [each for each in least if all(_takes(each, other) for other in least)]
    if not found:
        shown = "; ".join(map(_shown, answering[:4]))
        raise GraphError("function-traced-often", name=name, count=len(traced), signatures=shown)
    larger = list(dict.fromkeys(_shown(each) for each in answering if each not in least))
    if not larger:
        return found[0], []
    others = "; ".join(f"({each})" for each in larger[:4])
    return found[0], [
        f"function '{name}' is traced with different inputs: using the form with the fewest, "
        f"({_shown(found[0])}); other forms: {others} (save the model with one of these as its "
        "signature to use it)"
    ]


def _leaves(traced: Any) -> list[Any]:
    """Return what a form of a function was traced with: tensors, and values of Python."""
    import tensorflow as tf

    return list(tf.nest.flatten(traced.structured_input_signature, expand_composites=True))


def _specs(traced: Any) -> list[Any]:
    import tensorflow as tf

    return [leaf for leaf in _leaves(traced) if isinstance(leaf, tf.TensorSpec)]


def _shown(traced: Any) -> str:
    """Return the inputs of a form in words."""
    return ", ".join(
        f"{spec.name or 'tensor'}: {spec.dtype.name} {spec.shape}" for spec in _specs(traced)
    )


def _takes(wide: Any, narrow: Any) -> bool:
    """Say whether a form takes whatever another form takes."""
    ours, others = _leaves(wide), _leaves(narrow)
    return len(ours) == len(others) and all(map(_covers, ours, others))


def _covers(wide: Any, narrow: Any) -> bool:
    """Say whether an argument may be whatever another one may be."""
    import tensorflow as tf

    if isinstance(wide, tf.TensorSpec) and isinstance(narrow, tf.TensorSpec):
        return wide.dtype == narrow.dtype and bool(narrow.shape.is_subtype_of(wide.shape))
    return not isinstance(wide, tf.TensorSpec) and not isinstance(narrow, tf.TensorSpec)
