"""The user's tf.data function `module:function`, measured as an input style.

deploykit calls it eagerly, and rebuilds the returned dataset as a graph in the session of the
model. From then on, it is handled like the style tfdata.
"""

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploykit.data.data import Data
from deploykit.data.pipeline import Pipeline
from deploykit.data.preprocessing import Steps
from deploykit.records.examples import Feature
from deploykit.transforms.common.errors import Error, GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import split
from deploykit.transforms.ir.user_functions import raised, user_function
from deploykit.verification.synthetic.sample_inputs import names_of_inputs, type_and_shape

OWN = "own"  # the kind of data that only the user's function can read
_BATCH = ("batch", "batch_size")
_IGNORED = 1  # TensorFlow's policy for state outside the dataset, such as Python's


@dataclass(frozen=True)
class AcceptedInput:
    """The dtype and shape of a model input, and its possible names in an element."""

    names: tuple[str, ...]
    dtype: str
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True)
class OwnPipeline:
    """The name and arguments of a function that returns a dataset, and the inputs to provide."""

    name: str
    """The function, as `module:function`."""
    path: str
    """The path argument of the function; empty: none."""
    batch: int | None
    """The batch size, if the function takes one; None: its default."""
    inputs: Mapping[str, AcceptedInput]
    """The model inputs by tensor name."""
    folders: tuple[str, ...] = ()
    """More folders in which to look for the module."""

    def alone(self) -> Pipeline:
        """Return a pipeline for data that only the user's function can read."""
        features = {
            tensor: Feature(item.dtype, (item.shape or ())[1:])
            for tensor, item in self.inputs.items()
        }
        steps = {k: Steps(feature=k, dtype=item.dtype) for k, item in features.items()}
        return Pipeline(Data(self.path or self.name, OWN, (), features), steps, epochs=None)


def own_pipeline(given: Any, path: str | None, batch: int | None, graph: Graph) -> OwnPipeline:
    """Return the user's function, a `module:function` or the function itself.

    GraphError: the function cannot be imported by name, such as a lambda.
    """
    name, folders = _name_of(given) if callable(given) else (str(given), ())
    module, colon, function = name.partition(":")
    if not (colon and module and function):
        raise GraphError("unexpected", what="pipeline", got=name, expected="module:function")
    inputs = {}
    for tensor, names in names_of_inputs(graph).items():
        dtype, shape, _ = type_and_shape(graph, tensor)
        sizes = None if shape is None else tuple(None if s < 0 else s for s in shape)
        inputs[tensor] = AcceptedInput(names, dtype, sizes)
    return OwnPipeline(name, path or "", batch, inputs, folders)


def _name_of(function: Callable[..., Any]) -> tuple[str, tuple[str, ...]]:
    """Return the name and the folders with which a child process can import a function."""
    module = getattr(function, "__module__", "")
    name = getattr(function, "__qualname__", "")
    folders = tuple(os.path.abspath(folder) for folder in sys.path)
    if module == "__main__":
        file = getattr(sys.modules[module], "__file__", None)
        module = Path(file).stem if file else ""
    if not (module and name.isidentifier()):
        raise GraphError("pipeline-not-importable")
    return f"{module}:{name}", folders


class OwnDataset:
    """The dataset that the function returned, which can be rebuilt in a graph."""

    def __init__(self, own: OwnPipeline) -> None:
        """Call the function eagerly. GraphError: it fails, or its elements do not match."""
        import tensorflow as tf

        self._own = own
        sys.path += [folder for folder in own.folders if folder not in sys.path]
        result = self._called()
        if not isinstance(result, tf.data.Dataset):
            raise self._error("pipeline-returned", got=type(result).__name__)
        self.spec = result.element_spec
        self._places = self._fitting()
        self._check()
        try:
            self._graph_def = tf.raw_ops.DatasetToGraphV2(
                input_dataset=tf.data.experimental.to_variant(result),
                external_state_policy=_IGNORED,
                strip_device_assignment=True,
            ).numpy()
        except tf.errors.OpError as error:
            text = error.message[:200]
            raise self._error("pipeline-not-in-session", reason=text) from None

    def dataset(self, feeds: dict[Any, Any]) -> Any:
        """Return the dataset in the current graph; values for its iterator are added to `feeds`.

        With its graph as a constant, TensorFlow would fold it into a dataset and could not copy it.
        """
        import tensorflow as tf

        slot = tf.compat.v1.placeholder(tf.string, ())
        feeds[slot] = self._graph_def
        variant = tf.raw_ops.DatasetFromGraph(graph_def=slot)
        return tf.data.experimental.from_variant(variant, self.spec)

    def inputs_of(self, element: Any) -> dict[str, Any]:
        """Return the part of an element for each input."""
        return {tensor: _at(element, place) for tensor, place in self._places.items()}

    def _called(self) -> Any:
        """Return the dataset from the function, repeated endlessly."""
        own = self._own
        function = None
        try:
            function = user_function(own.name)
            arguments, named = self._arguments(inspect.signature(function))
            result = function(*arguments, **named)
            endless = "epochs" in named or not hasattr(result, "repeat")
            return result if endless else result.repeat()
        except GraphError:
            raise
        except Error as error:
            raise error.within(f"pipeline {self._own.name}", GraphError) from None
        except (Exception, SystemExit) as error:
            raise self._error("transform-raised", reason=raised(error, function)) from None

    def _arguments(self, signature: inspect.Signature) -> tuple[list[str], dict[str, Any]]:
        """Return the arguments of the function: the path, the batch size, and endless epochs."""
        parameters = signature.parameters
        positional = [
            parameter for parameter in parameters.values()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
            and parameter.name not in (*_BATCH, "epochs")
        ]  # fmt: skip
        several = any(
            parameter.kind == parameter.VAR_POSITIONAL for parameter in parameters.values()
        )
        path = [self._own.path] if self._own.path and (positional or several) else []
        needed = [item.name for item in positional[len(path) :] if item.default is item.empty]
        if needed:
            given = "--data" if path else "no path, because --data is not set"
            raise self._error("pipeline-parameters", needed=needed, given=given)
        named: dict[str, Any] = {"epochs": None} if "epochs" in parameters else {}
        size = next((name for name in _BATCH if name in parameters), None)
        if size and self._own.batch:
            named[size] = self._own.batch
        elif size and parameters[size].default is inspect.Parameter.empty:
            raise self._error("pipeline-needs-batch", parameter=size)
        return path, named

    def _fitting(self) -> dict[str, tuple[Any, ...]]:
        """Return the keys of each input in an element. GraphError: an input is missing."""
        inputs, spec = self._own.inputs, self.spec
        if isinstance(spec, tuple) and len(spec) != len(inputs) and len(spec) in (2, 3):
            # As in Keras, a tuple contains the inputs, the labels and the sample weights.
            places = self._parts(spec[0])
            if places is not None:
                return {tensor: (0, *place) for tensor, place in places.items()}
        places = self._parts(spec)
        if places is not None:
            return places
        requested = [input_.names[0] for input_ in inputs.values()]
        gives = list(spec) if isinstance(spec, Mapping) else _described(spec)
        raise self._error("pipeline-inputs-differ", got=gives, expected=requested)

    def _parts(self, spec: Any) -> dict[str, tuple[Any, ...]] | None:
        inputs = self._own.inputs
        if isinstance(spec, Mapping):
            keys = {
                tensor: next((name for name in item.names if name in spec), None)
                for tensor, item in inputs.items()
            }
            return None if None in keys.values() else {k: (key,) for k, key in keys.items()}
        if isinstance(spec, tuple):
            fits = len(spec) == len(inputs)
            return {k: (place,) for place, k in enumerate(inputs)} if fits else None
        return {next(iter(inputs)): ()} if len(inputs) == 1 else None

    def _check(self) -> None:
        """Raise GraphError if a part of an element does not match its input."""
        import tensorflow as tf

        for tensor, item in self._own.inputs.items():
            result = _at(self.spec, self._places[tensor])
            name = split(tensor)[0]
            if not isinstance(result, tf.TensorSpec):
                raise self._error("pipeline-gives-no-tensor", name=name, got=type(result).__name__)
            gives = f"{result.dtype.name} {_shape(result.shape)}"
            fits = result.dtype.name == item.dtype and result.shape.is_compatible_with(item.shape)
            if not fits or result.shape.rank == 0:
                requested = f"{item.dtype} {_shape(tf.TensorShape(item.shape))}"
                raise self._error(
                    "pipeline-input-differs", name=name, got=gives, expected=requested
                )

    def _error(self, code: str, /, **fields: object) -> GraphError:
        return GraphError(code, source=f"pipeline {self._own.name}", **fields)


def _at(element: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        element = element[key]
    return element


def _described(spec: Any) -> str:
    count = f"{len(spec)} values" if isinstance(spec, tuple) else "one tensor"
    return f"tuples of {count}" if isinstance(spec, tuple) else count


def _shape(shape: Any) -> str:
    if shape.rank is None:
        return "of any shape"
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"
