"""Compares a graph frozen from a Keras model with the live model, called eagerly.

Keras can trace a model into a graph that differs from an eager call, and the frozen graph matches
the trace. Therefore the live model runs as well, at two batch sizes and lengths.
"""

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deploykit.importers.freeze import is_keras
from deploykit.importers.graph_files import parse_graph_def
from deploykit.importers.keras.keras_files import caller, load_model, package_of, registered_model
from deploykit.importers.keras.layer_calls import differing_layer, variables_restored
from deploykit.importers.open_model import OpenedModel
from deploykit.storage.files import read_bytes
from deploykit.transforms.common.errors import GraphError, UnverifiedError, VerificationError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.child_process import call
from deploykit.transforms.runtime.differences import QualityBar, compare
from deploykit.transforms.runtime.session import Session
from deploykit.transforms.untrusted.files import MAX_TEXT
from deploykit.verification.synthetic.sample_inputs import Shaped, made_up_feeds, type_and_shape
from deploykit.verification.tolerance import default_tolerance
from deploykit.verification.verify import Verification

logger = logging.getLogger("deploykit")

Feed = Sequence[Array]
"""Arrays of all inputs, in the order of the inputs."""

SLACK = 10
"""Factor on the tolerance of a rewrite: an eager call may use other kernels than a graph."""


@dataclass(frozen=True)
class KerasFile:
    """A Keras model file, which the child process loads."""

    path: str
    architecture: bytes | None = None


@dataclass(frozen=True)
class LiveModel:
    """A Keras model, and its name in error messages."""

    name: str
    model: Any
    """The `keras.Model` in this process, or a `KerasFile`."""


@dataclass(frozen=True)
class FrozenFile:
    """The file of a frozen graph, and its inputs and outputs in the order of the model's."""

    path: str
    inputs: Sequence[str]
    outputs: Sequence[str]


@dataclass(frozen=True)
class LiveComparison:
    """How the outputs of a graph differ from those of the live model."""

    failure: str = ""
    """The first difference above the tolerance; empty: none."""
    layer: str = ""
    """The layer whose traced call differs from its eager call."""
    not_possible: str = ""
    """Why the models could not be compared; empty: they were."""


def live_model(model: OpenedModel) -> LiveModel | None:
    """Return the Keras model that was frozen as a whole; None: no Keras model, or only a part."""
    source = model.requested
    if source.inputs or source.outputs or source.pins or source.signature:
        return None
    if model.files is not None and model.files.kind == "keras":
        architecture = None
        if source.graph is not None:
            architecture = read_bytes(Path(source.graph), MAX_TEXT, "description")
        return LiveModel(model.source, KerasFile(str(model.files.location.path), architecture))
    if is_keras(source.model) and getattr(source.model, "inputs", None):
        return LiveModel(model.source, source.model)
    return None


def checked_against_live(
    verification: Verification,
    live: LiveModel,
    graph: Graph,
    path: Path,
    feeds: Sequence[Feed],
    strict: bool,
) -> Verification:
    """Return the verification of a frozen graph's file after a comparison with the live model.

    VerificationError: the graph differs from its Keras model. UnverifiedError: the model cannot
    run eagerly on the feeds. If not `strict`, both are logged as warnings instead.
    """
    try:
        _check(live, graph, str(path), feeds)
    except VerificationError as error:
        if strict:
            raise type(error)("nothing-written", reason=error) from None
        logger.warning("%s", error)
        is_verified = not isinstance(error, UnverifiedError)
        return replace(verification, verified=is_verified, passed=False, reason=str(error))
    return verification


def _check(live: LiveModel, graph: Graph, path: str, feeds: Sequence[Feed]) -> None:
    tolerance = SLACK * default_tolerance(graph)
    frozen = FrozenFile(path, graph.inputs, graph.outputs)
    if isinstance(live.model, KerasFile):
        name = "deploykit.pipelines.live_keras:compare_file"
        forced = {"KERAS_BACKEND": "tensorflow"}
        try:
            live_comparison = call(
                name, live.model, frozen, feeds, tolerance, forced=forced, kept=True
            )
        except GraphError as error:
            model = registered_model(live.model.path, live.model.architecture, error)
            _check(replace(live, model=model), graph, path, feeds)
            return
    else:
        name = "deploykit.pipelines.live_keras:compare_outputs"
        try:
            expected = _eager(live.model, feeds)
        except GraphError as error:
            live_comparison = LiveComparison(not_possible=str(error))
        else:
            live_comparison = call(name, frozen, feeds, expected, tolerance)
        if live_comparison.failure:
            live_comparison = _with_layer(live.model, feeds, live_comparison, tolerance)
    if live_comparison.not_possible:
        raise UnverifiedError(
            "keras-not-compared", source=live.name, reason=live_comparison.not_possible
        )
    if live_comparison.failure:
        where = f" (layer '{live_comparison.layer}')" if live_comparison.layer else ""
        raise VerificationError(
            "keras-differs", source=live.name, where=where, reason=live_comparison.failure
        )


def compare_file(
    file: KerasFile, frozen: FrozenFile, feeds: Sequence[Feed], tolerance: float
) -> LiveComparison:
    """Compare a graph with a Keras file; call it in a child process."""
    model = load_model(file.path, file.architecture)
    try:
        expected = _eager(model, feeds)
    except GraphError as error:
        return LiveComparison(not_possible=str(error))
    result = compare_outputs(frozen, feeds, expected, tolerance)
    return _with_layer(model, feeds, result, tolerance) if result.failure else result


def compare_outputs(
    frozen: FrozenFile, feeds: Sequence[Feed], expected: Sequence[Sequence[Array]], tolerance: float
) -> LiveComparison:
    """Compare a graph with the outputs of the live model; call it in a child process."""
    session, bar = Session(parse_graph_def(frozen.path)), QualityBar(tolerance)
    for feed, values in zip(feeds, expected, strict=False):
        named = dict(zip(frozen.inputs, feed, strict=True))
        try:
            result, again = (session.run(list(frozen.outputs), named) for _ in range(2))
        except GraphError as error:
            return LiveComparison(f"the graph cannot be run: {error}")
        if any(bar.failure(difference) for difference in compare(result, again)):
            return LiveComparison(not_possible="the model draws random numbers")
        if len(result) != len(values):
            return LiveComparison(f"{len(result)} outputs instead of {len(values)}")
        for name, difference in zip(frozen.outputs, compare(values, result), strict=True):
            if failure := bar.failure(replace(difference, output=name)):
                sizes = ", ".join(str(list(array.shape)) for array in feed)
                return LiveComparison(f"{failure}, for inputs of shape {sizes}")
    return LiveComparison()


def _eager(model: Any, feeds: Sequence[Feed]) -> list[list[Array]]:
    """Return the model's outputs for each feed, up to the first feed that it refuses.

    GraphError: the model refuses the first feed.
    """
    import tensorflow as tf

    run, result = caller(model), list[list[Array]]()
    for feed in feeds:
        try:
            with variables_restored(model):
                parts = run([tf.constant(array) for array in feed])
        except GraphError:
            if not result:
                raise
            break
        result.append([item.numpy() for part in parts for item in part])
    return result


def _with_layer(
    model: Any, feeds: Sequence[Feed], live_comparison: LiveComparison, tolerance: float
) -> LiveComparison:
    """Return a comparison with the layer whose trace differs, if one is found."""
    for feed in feeds:
        with contextlib.suppress(Exception):  # Keras may raise any exception
            layer = differing_layer(package_of(model), model, caller(model), feed, tolerance)
            if layer:
                return replace(live_comparison, layer=layer)
    return live_comparison


def live_feeds(graph: Graph, input_range: tuple[float, float], shapes: Shaped) -> list[Feed]:
    """Return synthetic values of the inputs in their order, for two batch sizes and lengths."""
    made, _ = made_up_feeds(graph, input_range, shapes)
    if not made:
        return []
    first, others = made[0], dict(shapes)
    for tensor, array in first.items():
        declared = type_and_shape(graph, tensor)[1]
        if declared is not None and min(declared, default=0) < 0 and tensor not in shapes:
            sizes = zip(declared, array.shape, strict=True)
            others[tensor] = [_other(size) if d < 0 else size for d, size in sizes]
    second = made_up_feeds(graph, input_range, others)[0][:1] if others != shapes else []
    return [[feed[tensor] for tensor in graph.inputs] for feed in (first, *second)]


def _other(size: int) -> int:
    """Return another size for an open dimension; half of it, as lengths may be limited."""
    return size // 2 if size > 3 else size + 1
