"""Opens a version directory and assigns an engine to each signature."""

import logging
import threading
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from deploykit.serving.execution.batch_parts import BatchParts
from deploykit.serving.execution.engines.engine import Engine, Loading, MissingEngine, reason
from deploykit.serving.execution.engines.openvino_engine import OpenVinoEngine
from deploykit.serving.execution.engines.split_engine import SplitEngine, split_signatures
from deploykit.serving.execution.engines.tensorflow_engine import TensorFlowEngine, Traits
from deploykit.serving.execution.engines.trial import engine_of
from deploykit.serving.execution.row_independence import unmixed
from deploykit.serving.execution.safety import check_safe
from deploykit.serving.execution.servable import Servable
from deploykit.serving.execution.slots import QuickCalls
from deploykit.serving.protocol.signatures import (
    Signature,
    Tensor,
    read_meta_graph,
    signatures_with_axes,
)
from deploykit.transforms.common.errors import Error, GraphError, MismatchError
from deploykit.transforms.engines.engine_folder import FOLDER, SAVED_MODEL, read
from deploykit.transforms.engines.engine_manifest import EngineFolder, EngineTensor
from deploykit.transforms.engines.engine_session import MODEL
from deploykit.transforms.engines.engines import AUTO, OPENVINO, TENSORFLOW, lacking
from deploykit.transforms.engines.packages import is_installed
from deploykit.transforms.runtime.tensorflow_start import start_tensorflow

logger = logging.getLogger("deploykit")

_told = threading.Lock()  # acquired for good by the first warning about a missing engine


def open_version(folder: Path, name: str, version: int, loading: Loading) -> Servable:
    """Load a version directory.

    FileError, GraphError: it is not a valid SavedModel, or the requested engine cannot run it.
    LimitError: that engine exceeds its time or memory. RefusedError: an op is not allowed.
    """
    meta = read_meta_graph(folder)
    signatures = signatures_with_axes(folder, meta)
    engines: dict[str, Engine] = {}
    if (result := _openvino(folder, signatures, loading)) is not None:
        engines |= {name: result for name in result.signatures if name in signatures}
    left = {name: signatures[name] for name in signatures if name not in engines}
    if left and engines and not is_installed(TENSORFLOW):
        words = "%s: TensorFlow is not installed, so signatures that need it are refused: %s"
        logger.warning(words, folder, ", ".join(left))
        engines |= dict.fromkeys(left, MissingEngine())
        for signature, item in left.items():
            signatures[signature] = replace(item, unavailable=reason())
        left = {}
    if not left:
        parts = BatchParts(signatures, (), [n for n, item in engines.items() if item.spreads])
        return Servable(folder, name, version, signatures, engines, QuickCalls(meta), parts)
    try:
        start_tensorflow()
        check_safe(meta, folder, loading.allow_ops)
        traits = Traits.of(meta, left)
        models = (
            {} if result is None else {name: result.signature(name) for name in result.signatures}
        )
        split = split_signatures(meta, left, models)
        whole = {name: item for name, item in left.items() if name not in split}
        steady = {
            name: item
            for name, item in whole.items()
            if traits.any_shape.isdisjoint(tensor.name for tensor in item.inputs.values())
        }
        apart = unmixed(meta, steady) if loading.slots > 1 else ()
        quick = QuickCalls(meta, traits.photos)
        del meta  # contains the weights, as does a session
        engine = TensorFlowEngine(folder, left, traits, loading)
    except BaseException:
        if result is not None:
            result.close()
        raise
    engines |= dict.fromkeys(whole, engine)
    if result is not None:
        engines |= dict.fromkeys(split, SplitEngine(left, split, result, engine))
        logger.info("%s: %s", folder, _who(engines, split))
    spread = [name for name, item in engines.items() if item.spreads]
    parts = BatchParts(signatures, apart, spread)
    return Servable(folder, name, version, signatures, engines, quick, parts)


def _openvino(
    folder: Path, signatures: Mapping[str, Signature], loading: Loading
) -> OpenVinoEngine | None:
    """Return the engine for the signatures exported for OpenVINO, or None.

    A folder that was written for another version is ignored with a warning, whatever engine is
    requested. Otherwise, if OpenVINO cannot run the version: `--engine openvino` raises the reason,
    `auto` logs it.
    """
    if loading.engine == TENSORFLOW:
        return None
    try:
        content = read(folder)
        if content is None:
            if loading.engine == AUTO:
                return None
            raise GraphError("engine-folder-missing", source=folder, folder=FOLDER)
        if content.use.engine != OPENVINO:
            raise GraphError(
                "engine-folder-other",
                source=folder,
                folder=FOLDER,
                engine=content.use.engine,
                expected=OPENVINO,
            )
        if (why := lacking(OPENVINO)) and loading.engine == AUTO:
            if loading.tells and _told.acquire(blocking=False):
                words = "TensorFlow runs models exported for OpenVINO, such as %s: %s"
                logger.warning(words, folder, why)
            return None
        if not content.is_bound and loading.tells:
            logger.warning("%s: %s has no SHA-256 of %s, so it may be of another version; export "
                           "the model again", folder, FOLDER, SAVED_MODEL)  # fmt: skip
        _check_same(folder, content, signatures)
        return engine_of(folder, content, loading)
    except MismatchError as error:
        if loading.tells:
            logger.warning("%s and is ignored: TensorFlow runs this version. Export the model "
                           "again.", error)  # fmt: skip
        return None
    except Error as error:
        if loading.engine != AUTO:
            raise
        logger.warning("%s: falling back from OpenVINO to TensorFlow: %s", folder, error)
        return None


def _check_same(folder: Path, content: EngineFolder, signatures: Mapping[str, Signature]) -> None:
    """Raise GraphError if signatures exported for the engine differ from those of the version."""
    for name, item in content.signatures.items():
        if name == MODEL:  # its tensors are looked up in the graph
            continue
        ours = signatures.get(name)
        if ours is None:
            raise GraphError("engine-signature-missing", source=folder, folder=FOLDER, name=name)
        for mine, other in ((ours.inputs, item.inputs), (ours.outputs, item.outputs)):
            if {alias: _kind(tensor) for alias, tensor in mine.items()} != {
                alias: _kind(tensor) for alias, tensor in other.items()
            }:
                raise GraphError("engine-tensors-differ", source=folder, folder=FOLDER, name=name)


def _kind(tensor: Tensor | EngineTensor) -> tuple[str, tuple[int, ...] | None]:
    return str(tensor.dtype), tensor.shape


def _who(engines: Mapping[str, Engine], split: Collection[str]) -> str:
    """Return which engine runs which signatures, as text."""
    by_engine: dict[str, list[str]] = {}
    for signature, engine in sorted(engines.items()):
        by_engine.setdefault(engine.name, []).append(f"'{signature}'")
    results = [f"{name} runs {', '.join(names)}" for name, names in sorted(by_engine.items())]
    if split:
        names = ", ".join(f"'{name}'" for name in sorted(split))
        results.append(f"{TENSORFLOW} runs the pre- and postprocessing of {names}")
    return "; ".join(results)
