"""The user's own tf.data function, measured like a style of input: `module:function`.

It is called as any program would call it, eagerly, and what it returns is taken into the session in
which the model runs, as a graph; from there on, it goes the way of the style tfdata.
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
from deploykit.verification.samples import names_of_inputs
from deploykit.verification.synthetic.sample_inputs import type_and_shape

OWN = "own"  # the kind of data that nobody but the function can read
_BATCH = ("batch", "batch_size")
_IGNORED = 1  # what TensorFlow does about state outside of a dataset, such as Python's


@dataclass(frozen=True)
class TakenInput:
    """What an input of a model takes, and the names by which elements may call it."""

    names: tuple[str, ...]
    dtype: str
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True)
class OwnPipeline:
    """A function that makes a dataset, by name, and what it is to make."""

    name: str
    """module:function."""
    path: str
    """What it is called with; empty: nothing."""
    batch: int | None
    """Records at once, where the function takes such a number; None: its default."""
    inputs: Mapping[str, TakenInput]
    """By tensor."""
    folders: tuple[str, ...] = ()
    """Where else its module is looked for."""

    def alone(self) -> Pipeline:
        """Return what stands for it where nobody else can read the data."""
        features = {
            tensor: Feature(item.dtype, (item.shape or ())[1:])
            for tensor, item in self.inputs.items()
        }
        steps = {k: Steps(feature=k, dtype=item.dtype) for k, item in features.items()}
        return Pipeline(Data(self.path or self.name, OWN, (), features), steps, epochs=None)


def own_pipeline(given: Any, path: str | None, batch: int | None, graph: Graph) -> OwnPipeline:
    """Return the user's function, a `module:function` or the function itself.

    GraphError: it can be found by no name, as a lambda.
    """
    name, folders = _name_of(given) if callable(given) else (str(given), ())
    module, colon, function = name.partition(":")
    if not (colon and module and function):
        raise GraphError("unexpected", what="pipeline", got=name, expected="module:function")
    inputs = {}
    for tensor, names in names_of_inputs(graph).items():
        dtype, shape, _ = type_and_shape(graph, tensor)
        sizes = None if shape is None else tuple(None if s < 0 else s for s in shape)
        inputs[tensor] = TakenInput(names, dtype, sizes)
    return OwnPipeline(name, path or "", batch, inputs, folders)


def _name_of(function: Callable[..., Any]) -> tuple[str, tuple[str, ...]]:
    """Return by which name a child process finds a function, and in which folders."""
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
    """What the function returned, which can be built again in a graph."""

    def __init__(self, own: OwnPipeline) -> None:
        """Call the function eagerly. GraphError: it fails, or gives no elements that fit."""
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
            said = error.message[:200]
            raise self._error("pipeline-not-in-session", reason=said) from None

    def dataset(self, feeds: dict[Any, Any]) -> Any:
        """Return the dataset in the current graph; `feeds` takes what its iterator is fed.

        As a constant, its graph would be folded into a dataset, which TensorFlow cannot copy.
        """
        import tensorflow as tf

        slot = tf.compat.v1.placeholder(tf.string, ())
        feeds[slot] = self._graph_def
        variant = tf.raw_ops.DatasetFromGraph(graph_def=slot)
        return tf.data.experimental.from_variant(variant, self.spec)

    def inputs_of(self, element: Any) -> dict[str, Any]:
        """Return which part of an element each input takes."""
        return {tensor: _at(element, place) for tensor, place in self._places.items()}

    def _called(self) -> Any:
        """Return what the function returns, repeated without end."""
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
        """Return what the function is called with: the path, the batch, and epochs without end."""
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
            given = "--data" if path else "nothing, for there is no --data"
            raise self._error("pipeline-parameters", needed=needed, given=given)
        named: dict[str, Any] = {"epochs": None} if "epochs" in parameters else {}
        size = next((name for name in _BATCH if name in parameters), None)
        if size and self._own.batch:
            named[size] = self._own.batch
        elif size and parameters[size].default is inspect.Parameter.empty:
            raise self._error("pipeline-needs-batch", parameter=size)
        return path, named

    def _fitting(self) -> dict[str, tuple[Any, ...]]:
        """Return where in an element each input lies, by keys. GraphError: one is nowhere."""
        inputs, spec = self._own.inputs, self.spec
        if isinstance(spec, tuple) and len(spec) != len(inputs) and len(spec) in (2, 3):
            # As Keras takes them: what the model takes, the labels, and the weights of samples.
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
        """Raise GraphError where a part of an element is not what its input takes."""
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
