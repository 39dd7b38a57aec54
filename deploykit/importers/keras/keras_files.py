"""Keras files, loaded in safe mode in a child process by a matching Keras version."""

import contextlib
import importlib
import io
import itertools
import json
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from deploykit.importers.initializers import Initialisers
from deploykit.importers.keras.keras_2_archives import (
    WEIGHTS,
    has_old_layout,
    write_archive,
    write_weights,
)
from deploykit.importers.keras.layer_calls import Call, augmentation_off, layer_calls
from deploykit.importers.model_path import KERAS_FOLDER
from deploykit.importers.resaving import (
    Resaved,
    input_name,
    named_outputs,
    read_again,
    saved_again,
    writing,
)
from deploykit.storage.archives import check_hdf5, open_archive
from deploykit.storage.files import read_bytes
from deploykit.transforms.common.errors import Error, GraphError, RefusedError, failed, lacks_memory
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.tensorflow_start import quiet
from deploykit.transforms.untrusted.files import MAX_TEXT, parsed_json, read_json, readable_size

_METADATA = KERAS_FOLDER[1]
_LIBRARIES = ("keras", "tf_keras")
_OLD = ("1.", "2.")  # versions whose files Keras 3 does not read
_OF_TRAINING = ("compile_config", "training_config")  # not loaded
# TensorFlow functions without side effects, which a Keras 2 layer may call.
_COMPUTES = re.compile(
    r"((compat\.v1\.)?(bitwise|dtypes|image|keras\.(activations|backend|layers)|linalg|math|nn|ragged"
    r"|random|sets|signal|sparse|strings)\.|compat\.v1\.|experimental\.numpy\.|__operators__\.)?\w+"
)
_ACTS = re.compile(r"file|py_func|numpy_function|load|print|save|restore|delete|variable", re.I)
# Quantization layers of TF-MOT (tensorflow-model-optimization).
_QUANTIZING = frozenset({"QuantizeLayer", "QuantizeWrapper", "QuantizeWrapperV2"})
# An error of Keras, whose older versions write the name without quotes.
_UNKNOWN = re.compile(r"Unknown (\w+(?: function)?): (?:'([^']+)'|([\w>]+))")


@contextlib.contextmanager
def read_keras(
    path: Path, architecture: Path | None = None
) -> Iterator[tuple[Graph, Initialisers]]:
    """Read a Keras file as a graph, with the model's inputs and outputs in order.

    `architecture` is the JSON file of the model if the file contains only weights.
    If this program has registered the file's custom objects, Keras loads it in this process.
    RefusedError: it contains code. GraphError: it is damaged, or lacks a custom layer's code.
    """
    description = (
        None if architecture is None else read_bytes(architecture, MAX_TEXT, "description")
    )
    resaving = "deploykit.importers.keras.keras_files:resave"
    with ExitStack() as files:
        try:
            result = files.enter_context(saved_again(resaving, str(path), description))
        except GraphError as error:
            model = registered_model(str(path), description, error)
            folder = files.enter_context(tempfile.TemporaryDirectory(prefix="deploykit-"))
            with quiet():
                result = read_again(folder, write_model(folder, model))
        yield result


def registered_model(path: str, architecture: bytes | None, error: GraphError) -> Any:
    """Load the model of a Keras file in this process, which has registered its custom objects.

    `error` is that of the child process. It is raised again if Keras does not know the object here.
    Other errors are those of `load_model`.
    """
    what = str(error.fields.get("what", "")) if error.code == "keras-custom-layer" else ""
    name = what.partition("'")[2].rstrip("'")
    if not name or not any(_is_registered(library, name) for library in _LIBRARIES):
        raise error
    with quiet():
        return load_model(path, architecture, is_child=False)


def _is_registered(library: str, name: str) -> bool:
    """Return whether this program has imported the library and registered an object with it."""
    keras = sys.modules.get(library)
    if keras is None or keras.backend.backend() != "tensorflow":
        return False
    return keras.saving.get_registered_object(name) is not None


def resave(folder: str, path: str, architecture: bytes | None) -> Resaved:
    """Convert a Keras file to a SavedModel.

    It runs in a child process. RefusedError: the file contains code (a Lambda layer).
    GraphError: it is damaged, lacks a custom layer's code, or cannot run.
    """
    return write_model(folder, load_model(path, architecture))


def load_model(path: str, architecture: bytes | None, *, is_child: bool = True) -> Any:
    """Load the model of a Keras file; it raises the errors of `resave`.

    This process is a child process, or one that has registered all custom objects of the file.
    """
    with ExitStack() as files:
        try:
            return _load(Path(path), architecture, files, is_child)
        except (Error, ModuleNotFoundError):
            raise
        except Exception as error:  # damaged files may raise any exception
            raise _failed("load the model", error) from None


def write_model(folder: str, model: Any) -> Resaved:
    """Write a Keras model as a SavedModel.

    GraphError: it cannot run, or its inputs are undefined.
    """
    import tensorflow as tf

    keras = package_of(model)
    if not getattr(model, "inputs", None):
        raise GraphError("keras-shapes-open")
    counts: list[int] = []
    augmenting: dict[str, None] = {}
    run = caller(model, augmenting)

    def answer(*tensors: Any) -> dict[str, Any]:
        parts = run(tensors)
        counts[:] = map(len, parts)  # a ragged tensor has several components
        return named_outputs(tf.identity(part) for item in parts for part in item)

    names, specs = zip(*_fed_tensors(keras, model), strict=True)
    serve = tf.function(answer, input_signature=specs, autograph=False)
    with layer_calls(keras) as calls:
        serve.get_concrete_function()
    keras.utils.disable_interactive_logging()
    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("serve", serve)
    with writing(folder):
        archive.write_out(folder)
    named = zip(_output_names(keras, model), counts, strict=True)
    outputs = [name for name, count in named for _ in range(count)]
    ignored = "" if keras.__name__ == "tf_keras" else "; Keras' predict() ignores it"
    notes = [f"layer '{name}': training=True kept{ignored}" for name in calls.in_training]
    notes += [f"layer '{name}': augmentation is off, as in predict()" for name in augmenting]
    notes += _input_notes(model)
    return Resaved(names, outputs, notes)


def caller(model: Any, augmenting: dict[str, None] | None = None) -> Call:
    """Return a function of the model's inputs, in order, that calls it for inference.

    A ragged input is several tensors. The call does not pass `training`, so layers that the author
    called with training=True keep that mode, as in `model.export`. Layers whose default is
    training=True are turned off; their names are added to `augmenting`. It returns the tensors of
    each output. GraphError: the call fails.
    """
    import tensorflow as tf

    keras = package_of(model)
    is_sequential = isinstance(model, keras.Sequential)
    structure = model.inputs[0] if is_sequential else model.input
    places = {id(tensor): place for place, tensor in enumerate(model.inputs)}

    specs = [_spec(tensor) for tensor in model.inputs]

    def call(tensors: Sequence[Any]) -> list[list[Any]]:
        whole = tf.nest.pack_sequence_as(specs, list(tensors), expand_composites=True)
        given = tf.nest.map_structure(lambda tensor: whole[places[id(tensor)]], structure)
        try:
            with augmentation_off(keras) as names:
                answers = model(given)
        except Exception as error:  # models may raise any exception
            raise _failed("run the model that it loaded", error) from None
        if augmenting is not None:
            augmenting.update(dict.fromkeys(names))
        return [tf.nest.flatten(item, expand_composites=True) for item in tf.nest.flatten(answers)]

    return call


def package_of(model: Any) -> Any:
    """Return the package of a model's class: `keras` or `tf_keras`."""
    names = [item.__module__.split(".")[0] for item in type(model).__mro__]
    return importlib.import_module("tf_keras" if "tf_keras" in names else "keras")


def _fed_tensors(keras: Any, model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name of each tensor that a caller feeds, and its spec in the signature."""
    import tensorflow as tf

    is_open, numbered = _takes_any_batch(keras, model), map(input_name, itertools.count())
    for tensor in model.inputs:
        spec, names = _spec(tensor), _names(tensor)
        for name, part in zip(names, tf.nest.flatten(spec, expand_composites=True), strict=True):
            is_dense = isinstance(spec, tf.TensorSpec)
            shape = [None, *part.shape[1:]] if is_open and is_dense else part.shape
            yield name, tf.TensorSpec(shape, part.dtype, next(numbered))


def _names(tensor: Any) -> list[str]:
    """Return the names of the tensors of an input: itself, or the parts of a ragged tensor."""
    import tensorflow as tf

    spec = _spec(tensor)
    if not isinstance(spec, tf.RaggedTensorSpec):
        return [tensor.name]
    ranks = range(spec.ragged_rank)
    splits = ["row_splits"] if len(ranks) == 1 else [f"row_splits_{n}" for n in ranks]
    return [f"{tensor.name}/{part}" for part in ("values", *splits)]


def _spec(tensor: Any) -> Any:
    """Return the tf.TypeSpec of an input as it is fed: ragged or dense, never sparse."""
    import tensorflow as tf

    shape, dtype = tf.TensorShape(tensor.shape), tensor.dtype
    spec = getattr(tensor, "type_spec", None)  # of Keras 2
    if isinstance(spec, tf.RaggedTensorSpec):
        return spec
    if not getattr(tensor, "ragged", False):
        return tf.TensorSpec(shape, dtype)
    last = max((n for n, size in enumerate(shape) if n and size is None), default=1)
    return tf.RaggedTensorSpec(shape, dtype, tensor.ragged_rank or last)  # as Keras 2 counts


def _input_notes(model: Any) -> list[str]:
    """Return how inputs are fed that are ragged or sparse in Keras."""
    import tensorflow as tf

    notes = []
    for tensor in model.inputs:
        is_sparse = getattr(tensor, "sparse", False)
        spec = getattr(tensor, "type_spec", None)
        if len(names := _names(tensor)) > 1:
            notes.append(f"input '{tensor.name}' is ragged: feed {' and '.join(names)}")
        elif is_sparse or isinstance(spec, tf.SparseTensorSpec):
            notes.append(f"input '{tensor.name}' is sparse in Keras: feed it as a dense tensor")
    return notes


def _takes_any_batch(keras: Any, model: Any) -> bool:
    """Return whether a model accepts any batch size, although its shapes may contain one.

    Keras stores the batch size of the first call in a Sequential without Input, but ignores it.
    """
    is_stateful = any(part.get("stateful") for part in _parts(model.get_config()))
    return isinstance(model, keras.Sequential) and not is_stateful


def _output_names(keras: Any, model: Any) -> list[str]:
    """Return the output names: keys of a dictionary, or else names of layers."""
    if isinstance(model, keras.Sequential):
        return [model.layers[-1].name]
    if isinstance(model.output, dict) and len(model.output) == len(model.outputs):
        return sorted(model.output)
    return list(model.output_names)


def _load(path: Path, architecture: bytes | None, files: ExitStack, is_child: bool) -> Any:
    """Load a model with a matching Keras version; it also raises the errors of Keras.

    RefusedError: the file contains code. GraphError: it lacks code that the model needs.
    """
    scratch = Path(files.enter_context(tempfile.TemporaryDirectory(prefix="deploykit-")))
    is_archive = path.is_dir() or zipfile.is_zipfile(path)
    read = _read_archive if is_archive else _read_hdf5
    config, version, source = read(path, architecture, scratch)
    if not isinstance(config, dict):
        raise GraphError("not-a-keras-model")
    _refuse_code(config)
    library = _LIBRARIES[version.startswith(_OLD)]
    keras = importlib.import_module(library)
    for what, name in () if is_child else _custom_parts(config):
        if not _is_registered(library, name):  # Keras may import any module for it
            raise GraphError("keras-custom-layer", what=what)
    try:
        if source.name.endswith(".weights.h5"):
            model = keras.models.model_from_json(json.dumps(config))
            model.load_weights(source)
            return model
        return keras.models.load_model(source, compile=False, safe_mode=True)
    except Exception as error:
        custom = _unknown_part(config, error, library, is_child)
        if custom is None or lacks_memory(error):
            raise
        if any(part.get("class_name") in _QUANTIZING for part in _parts(config)):
            raise GraphError("keras-quantization-aware") from None
        raise GraphError("keras-custom-layer", what=custom) from None


def _unknown_part(config: Any, error: Exception, library: str, is_child: bool) -> str | None:
    """Return the layer or function that Keras does not know, from its error or the config.

    In a program that has registered objects, registered ones are skipped.
    """
    parts = [*_custom_parts(config)]
    if unknown := _UNKNOWN.search(str(error)):
        name = unknown[2] or unknown[3]
        parts.insert(0, (f"{unknown[1]} '{name}'", name))
    whats = (what for what, name in parts if is_child or not _is_registered(library, name))
    return next(whats, None)


def _refuse_code(config: Any) -> None:
    """Raise RefusedError for a Lambda layer or a call of a function with side effects.

    Keras 2 stores `x * 2` as the name of a TensorFlow function, and calls any named function.
    """
    for part in _parts(config):
        if part.get("class_name") in ("Lambda", "__lambda__"):
            raise RefusedError("keras-lambda-layer")
        if part.get("class_name") == "TFOpLambda":
            name = str(part.get("config", {}).get("function"))
            if not _COMPUTES.fullmatch(name) or _ACTS.search(name):
                raise RefusedError("keras-runs-code", name=name)


def _read_archive(path: Path, _: bytes | None, scratch: Path) -> tuple[Any, str, Path]:
    """Return the config in a .keras file or folder, the Keras version, and the path to load."""
    if path.is_dir():
        config, metadata = (read_json(path / name, "Keras model") for name in KERAS_FOLDER)
        return config, _keras_version(metadata), path
    with open_archive(path, ".keras file") as archive:
        names = archive.namelist()
        for name in KERAS_FOLDER:
            if name not in names:
                raise GraphError("keras-archive-incomplete", name=name)
            if archive.getinfo(name).file_size > MAX_TEXT:
                raise GraphError("over-limit", what=name, most=readable_size(MAX_TEXT))
        config, metadata = (parsed_json(archive.read(name), name) for name in KERAS_FOLDER)
        version = _keras_version(metadata)
        named = scratch / "model.keras"
        is_old = version.startswith(_OLD) and WEIGHTS in names
        if is_old and _is_of_old_layout(archive.read(WEIGHTS)):
            write_archive(archive, named)
        else:
            _link(path, named)
    return config, version, named


def _is_of_old_layout(weights: bytes) -> bool:
    """Return whether Keras 2 weights need conversion; this checks them, as Keras 2 does not."""
    import h5py

    with h5py.File(io.BytesIO(weights), "r") as file:
        check_hdf5(file, len(weights))
    return has_old_layout(io.BytesIO(weights))


def _keras_version(metadata: Any) -> str:
    if not isinstance(metadata, dict):
        raise GraphError("not-a-keras-description", name=_METADATA)
    return str(metadata.get("keras_version", ""))


def _read_hdf5(path: Path, architecture: bytes | None, scratch: Path) -> tuple[Any, str, Path]:
    """Return the config of an HDF5 file's model, the Keras version, and the path to load.

    If the file contains only weights, `architecture` is the config.
    """
    import h5py

    try:
        opened = h5py.File(path, "r")
    except OSError as error:
        text = f"its HDF5 file cannot be opened ({_text(error)})"
        raise GraphError(
            "runtime-failed", runtime="Keras", action="load the model", reason=text
        ) from None
    with opened as file:
        check_hdf5(file, path.stat().st_size)
        attr = file.attrs.get("model_config", architecture)
        if attr is None:
            raise GraphError("keras-weights-only")
        config = parsed_json(attr, "description of the model")
        weights = file.get("model_weights", file)
        version = _version(config, file, weights)
        if weights is file and "layer_names" not in file.attrs:
            _link_weights(path, scratch / WEIGHTS)
            return config, version, scratch / WEIGHTS
        joined = scratch / "model.h5"
        with h5py.File(joined, "w") as model:
            model.attrs["model_config"] = json.dumps(config)
            model.attrs["keras_version"] = version
            model.copy(weights, "model_weights")
    return config, version, joined


def _link_weights(path: Path, name: Path) -> None:
    """Link or convert weights of the current format under a name that Keras recognizes."""
    with path.open("rb") as weights:
        if not has_old_layout(weights):
            _link(path, name)
            return
        weights.seek(0)
        with name.open("w+b") as target:
            write_weights(weights, target)


def _version(config: Any, *groups: Any) -> str:
    """Return the Keras version that wrote an HDF5 file; the oldest versions did not store it."""
    versions = [group.attrs.get("keras_version") for group in groups] + [
        config.get("keras_version")
    ]
    version = next((item for item in versions if item is not None), None)
    if version is None:
        return "3." if "module" in config else "1."
    return version.decode() if isinstance(version, bytes) else str(version)


def _link(path: Path, name: Path) -> None:
    """Link a file under a name by which Keras recognizes its format."""
    name.symlink_to(path.absolute())


def _parts(config: Any) -> Iterator[dict[str, Any]]:
    """Yield all dictionaries of a config, at any depth, except those for training."""
    waiting = [config]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting += [value for name, value in part.items() if name not in _OF_TRAINING]
        elif isinstance(part, list):
            waiting += part


def _custom_parts(config: Any) -> Iterator[tuple[str, str]]:
    """Yield each layer or function in a config that is not part of Keras, and its name."""
    for part in _parts(config):
        if "class_name" in part and "module" in part and "config" in part:
            is_function = part["class_name"] == "function"
            if str(part["module"]).split(".")[0] not in _LIBRARIES:
                name = part["config"] if is_function else part.get("registered_name")
                name = str(name or part["class_name"])
                yield f"{'function' if is_function else 'layer'} '{name}'", name


def _failed(action: str, error: Exception) -> Error:
    reason = _text(error)
    return failed("runtime-failed", error, runtime="Keras", action=action, reason=reason)


def _text(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
