"""Completes the preprocessing of each model input from the declaration, the data and the graph."""

import json
import shlex
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from deploykit.data.data import Data
from deploykit.data.preprocessing import Preprocessing, Steps, known_preprocessing
from deploykit.importers.image_range import (
    BESIDE,
    SIGNED,
    UNIT,
    ExpectedRange,
    PhotoRange,
    expected_from,
    expected_range,
)
from deploykit.records.examples import Feature
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import split
from deploykit.transforms.ir.tensors import numpy_type
from deploykit.verification.fitting import of_type, tell_only
from deploykit.verification.synthetic.sample_inputs import (
    names_of_inputs,
    per_sample,
)

_INT8, _HALF = PhotoRange(-128.0, 127.0), PhotoRange(0.0, 127.0)


class Planned(NamedTuple):
    """The complete steps of an input, and the source of its image value range."""

    steps: Steps
    why: str = ""


def plan(data: Data, graph: Graph | None, declared: Preprocessing) -> dict[str, Planned]:
    """Return the complete steps of each input of a graph; without a graph, of each feature.

    GraphError: an input has no feature, its value does not match the dtype or shape, or the value
    range of an image input is unknown.
    """
    expected: dict[str, tuple[str, tuple[int, ...] | None]]
    if graph is None:
        complete = tuple(name for name in data.features if name not in data.optional)
        names = tuple(declared.inputs) or complete or tuple(data.features)
        expected = dict.fromkeys(names, ("", None))
        known: dict[str, tuple[str, ...]] = {name: (name,) for name in names}
    else:
        expected = per_sample(graph)
        known = names_of_inputs(graph)
        declared = declared.among(graph)
    results = {}
    for tensor, (type_, shape) in expected.items():
        steps = declared.of(known[tensor])
        name = steps.feature or _feature_for(known[tensor], len(expected), data, type_, shape)
        if name in data.unusable:  # before its shape, which a bad row may prevent
            raise data.unusable[name].error(data.path, name)
        if name not in data.features:
            raise _feature_missing(name, tensor, data)
        feature, why = data.features[name], ""
        if feature.content == "image" and type_ == "string":
            steps = _as_files(data, tensor, declared.of_photos(known[tensor]), name)
            results[tensor] = Planned(steps, "the model decodes them")
            continue
        if feature.content == "image":
            steps = declared.of_photos(known[tensor])
        steps = _completed(replace(steps, feature=name), feature, type_, shape)
        if declared.why != BESIDE:
            _refuse_unused(data, steps, feature)
        _check(data, tensor, steps, feature, type_, shape)
        if feature.content == "image":
            steps, why = _valued(steps, data, graph, tensor, declared)
        results[tensor] = Planned(steps, why)
    return results


def _refuse_unused(data: Data, steps: Steps, feature: Feature) -> None:
    """Raise GraphError for a step that has no effect on a feature."""
    for name, is_given, is_used, where in (
        ("channels", steps.channels is not None, feature.content == "image", "on encoded images"),
        ("corners", steps.corners, steps.resize is not None, "with resize"),
    ):
        if is_given and not is_used:
            raise GraphError(
                "step-no-effect",
                source=data.path,
                step=name,
                feature=steps.feature,
                description=feature,
                where=where,
            )


def keeps_files(steps: Steps, feature: Feature) -> bool:
    """Return whether an input takes images as encoded bytes."""
    return feature.content == "image" and steps.dtype == "string"


def _as_files(data: Data, tensor: str, steps: Steps, name: str) -> Steps:
    """Return steps that keep images encoded. GraphError: other steps were declared."""
    requested = document(replace(steps, feature="", dtype=""))
    if requested:
        raise GraphError(
            "preprocess-step-decided",
            source=data.path,
            name=split(tensor)[0],
            step=next(iter(requested)),
        )
    return Steps(feature=name, dtype="string")


def _valued(
    steps: Steps, data: Data, graph: Graph | None, tensor: str, declared: Preprocessing
) -> Planned:
    """Return the steps of an image with its range, and the source. GraphError: it is unknown."""
    expected = None if graph is None else expected_range_of(graph, tensor)
    if steps.state_values:
        why = declared.why
        if (
            expected is not None
            and steps.range is not None
            and not steps.range.like(expected.range)
        ):
            why += f", but the model expects {expected.range}"
        return Planned(steps, why)
    if graph is not None and declared.why != BESIDE:
        beside = known_preprocessing(graph).among(graph).of_photos(names_of_inputs(graph)[tensor])
        if beside.state_values:
            return Planned(
                replace(steps, scale=beside.scale, mean=beside.mean, std=beside.std), BESIDE
            )
    if expected is not None:
        as_it_is = not steps.dtype.startswith(("float", "bfloat"))
        return Planned(steps if as_it_is else steps.into(expected.range), expected.why)
    if steps.dtype in ("uint8", "string"):
        return Planned(steps, f"{steps.dtype} input")
    likely = (_INT8, _HALF) if steps.dtype == "int8" else (UNIT, SIGNED)
    lines = " or ".join(_line(declared, item) for item in likely)
    raise GraphError("photo-range-unknown", source=data.path, name=split(tensor)[0], advice=lines)


def expected_range_of(graph: Graph, tensor: str) -> ExpectedRange | None:
    """Return the input range that a graph expected before rewriting, or that it expects now."""
    before = getattr(graph.about, "photos", {}).get(tensor)
    return expected_range(graph, tensor) if before is None else expected_from(before)


def _line(declared: Preprocessing, range_: PhotoRange) -> str:
    """Return an option with a range, and the rest of the declared preprocessing."""
    if declared.why == BESIDE or not (declared.inputs or declared.columns):
        return f"--preprocess {range_}"
    given = document(replace(declared, range=range_))
    return f"--preprocess {shlex.quote(json.dumps(given))}"


def _feature_for(
    names: tuple[str, ...], inputs: int, data: Data, type_: str, shape: tuple[int, ...] | None
) -> str:
    """Return the feature with one of the input's names, or the only possible one."""
    for name in names:
        if name in data.features or name in data.unusable:
            return name
    is_typed = data.kind == "arrays" or (data.usual is not None and len(data.unlabelled) > 1)
    only = data.only_of_type(type_, shape) if is_typed else data.unlabelled
    if inputs == len(only) == 1:
        if data.kind == "arrays":
            tell_only(names[0], only[0])
        return only[0]
    raise _feature_missing(names[0], names[0], data)


def _feature_missing(name: str, tensor: str, data: Data) -> GraphError:
    known = data.features
    return GraphError("feature-missing", source=data.path, name=name, input=tensor, known=known)


def _completed(steps: Steps, feature: Feature, type_: str, shape: tuple[int, ...] | None) -> Steps:
    """Return the steps with the defaults of this feature and this input."""
    dtype = steps.dtype or type_
    if feature.content == "image":
        dtype = dtype or "float32"
        sizes = shape[1:3] if shape is not None and len(shape) == 4 else (-1, -1)
        if steps.resize is None and steps.crop is None and min(sizes) > 0:
            steps = replace(steps, resize=(sizes[0], sizes[1]))
        if steps.channels is None:
            channels = shape[3] if shape is not None and len(shape) == 4 else 3
            steps = replace(steps, channels=channels if channels in (1, 3) else 3)
    elif not dtype:
        computed = steps.resize or steps.scale is not None or steps.mean or steps.std
        dtype = "float32" if computed else feature.dtype
    return replace(steps, dtype=dtype)


def result_of(steps: Steps, feature: Feature) -> Feature:
    """Return dtype and shape of one record's feature after the steps."""
    if keeps_files(steps, feature):
        return Feature("string", ())
    shape = feature.shape
    if feature.content == "image":
        shape = (None, None, steps.channels)
    for sizes in (steps.resize, steps.crop):
        if sizes is not None:
            shape = (*sizes, shape[-1])
    if steps.split is not None:
        shape = (None,)
    return Feature(steps.dtype, shape)


def is_computed(steps: Steps, feature: Feature) -> bool:
    """Return whether the steps compute new values, which may be cast to the input's dtype."""
    return feature.content == "image" or steps.resize is not None or steps.state_values


def _refuse_unfit(where: str, steps: Steps, feature: Feature) -> None:
    """Raise GraphError for a step that cannot be applied to a feature."""
    is_text = feature.dtype == "string" and not feature.content
    is_complex = feature.dtype.startswith("complex")
    rank = 3 if feature.content == "image" else len(feature.shape)
    for is_wrong, why in (
        ((steps.resize or steps.crop) and rank != 3, "cannot be resized or cropped like an image"),
        (steps.split is not None and not (is_text and rank == 0), "cannot be split into tokens"),
        (steps.length is not None and steps.split is None and feature.shape != (None,),
         "has no tokens to truncate"),
        (is_text and steps.state_values, "cannot be scaled, or have mean and std"),
        (is_complex and (steps.resize or steps.state_values),
         "is complex and cannot be resized or scaled, or have mean and std"),
    ):  # fmt: skip
        if is_wrong:
            raise GraphError("preprocess-refused", what=where, feature=feature, reason=why)


def _check(
    data: Data,
    tensor: str,
    steps: Steps,
    feature: Feature,
    type_: str,
    shape: tuple[int, ...] | None,
) -> None:
    """Raise GraphError if the steps cannot be computed, or their result cannot be fed."""
    where = f"{data.path}: feature '{steps.feature}' for input '{tensor}'"
    is_text = feature.dtype == "string" and not feature.content
    _refuse_unfit(where, steps, feature)
    if (
        steps.crop
        and steps.resize
        and any(c > r for c, r in zip(steps.crop, steps.resize, strict=True))
    ):
        raise GraphError("preprocess-crop", what=where, crop=steps.crop, resize=steps.resize)
    result = result_of(steps, feature)
    takes_images = shape is None or len(shape) == 4
    if feature.content == "image" and None in result.shape and takes_images:
        raise GraphError("preprocess-needs-resize", what=where)
    if is_text != (result.dtype == "string"):
        raise GraphError("preprocess-type-between", what=where, got=feature, expected=result.dtype)
    if type_ and result.dtype != type_:
        raise GraphError("does-not-fit", what=where, got=result.dtype, expected=type_)
    # The numbers in a CSV file have no dtype.
    cast = is_text or is_computed(steps, feature) or data.kind == "csv"
    if not cast and not np.can_cast(
        numpy_type(feature.dtype), numpy_type(result.dtype), "same_kind"
    ):
        if data.kind != "arrays":
            raise GraphError("does-not-fit", what=where, got=feature.dtype, expected=result.dtype)
        # Raises GraphError for a value that is not an integer; reading checks the range.
        of_type(split(tensor)[0], data.load()[steps.feature], result.dtype)
    for name, values in (("mean", steps.mean), ("std", steps.std)):
        last = result.shape[-1] if result.shape else None
        if len(values) > 1 and last != len(values):
            raise GraphError(
                "preprocess-channels", what=where, channels=last, count=len(values), name=name
            )
    if shape is None:
        return
    fits = len(shape) - 1 == len(result.shape) and all(
        s < 0 or r is None or s == r for s, r in zip(shape[1:], result.shape, strict=True)
    )
    if not fits:
        raise GraphError(
            "does-not-fit",
            what=where,
            got=_listed((None, *result.shape)),
            expected=_listed(tuple(None if s < 0 else s for s in shape)),
        )


def _listed(shape: tuple[int | None, ...]) -> str:
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"
