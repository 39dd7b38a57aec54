"""Declares the preprocessing of record features into model inputs.

The steps have a fixed order: decode, resize, crop, scale, subtract the mean, divide by the
deviation; or split into tokens, truncate, pad to the longest in the batch.
`apply_preprocessing.py` applies them in the same way for every input style.
"""

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, ClassVar, TypeVar, get_args

from msgspec import Meta

from deploykit.data.data import Columns
from deploykit.importers.image_range import (
    BESIDE,
    PhotoRange,
    range_from,
)
from deploykit.importers.metadata_file import about
from deploykit.storage.csv_files import HeaderRule
from deploykit.transforms.common.documents import Hidden, IfSet, Written, converted, document
from deploykit.transforms.common.errors import GraphError, nearest, unknown_name
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import split
from deploykit.transforms.ir.tensors import numpy_type
from deploykit.transforms.untrusted.files import read_json
from deploykit.verification.synthetic.sample_inputs import (
    batch_axes,
    names_of_inputs,
    paired_inputs,
    type_and_shape,
)

FORMAT = 1
_MOST = 1 << 16  # pixels along a side, and channels: no image has as many
_Size = Annotated[int, Meta(ge=1, le=_MOST)]
_Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]


@dataclass(frozen=True)
class Steps:
    """The preprocessing of one feature into one input. Steps that are None or empty are skipped."""

    OMIT_DEFAULTS: ClassVar = True

    feature: str = ""
    """The name of the feature. Default: the one with the input's name, or the only one."""
    channels: _Size | None = None
    """The number of channels of a decoded image. Default: that of the input, or 3."""
    resize: tuple[_Size, _Size] | None = None
    """Height and width in pixels for bilinear resizing. Default for an encoded image: those of the
    input."""
    corners: bool = False
    """Whether resizing uses pixel corners as in TensorFlow 1 and label_image
    (half_pixel_centers=False), instead of pixel centers."""
    crop: tuple[_Size, _Size] | None = None
    """Height and width in pixels of the central crop, after resizing."""
    scale: _Finite | None = None
    """The factor of each value; 1 keeps the pixel range 0..255."""
    mean: Annotated[tuple[_Finite, ...], Meta(min_length=1)] = ()
    """The value to subtract after scaling: one number, or one for each channel."""
    std: Annotated[tuple[_Finite, ...], Meta(min_length=1)] = ()
    """The divisor after that: one number, or one for each channel."""
    split: str | None = None
    """The separator that splits a text into tokens; an empty string splits at white space."""
    length: Annotated[int, Meta(ge=1)] | None = None
    """The maximum number of tokens. Shorter texts in a batch are padded with "" or 0."""
    dtype: str = ""
    """The dtype of the result. Default: that of the input."""
    batch_axis: Annotated[int, Meta(ge=0)] | None = None
    """The axis of the input on which the samples lie. Default: the first, 0."""

    @property
    def state_values(self) -> bool:
        """Whether the steps determine the value range of an image."""
        return bool(self.scale is not None or self.mean or self.std)

    def into(self, range_: PhotoRange) -> "Steps":
        """Return the steps with another value range."""
        return replace(self, scale=range_.scale, mean=range_.mean, std=())

    @property
    def range(self) -> PhotoRange | None:
        """The values of black and white pixels; None if they differ between channels."""
        if len(self.mean) > 1 or len(self.std) > 1:
            return None
        scale = 1.0 if self.scale is None else self.scale
        mean, std = (self.mean or (0.0,))[0], (self.std or (1.0,))[0]
        return PhotoRange(0.0 - mean / std, (255 * scale - mean) / std)


def _said(range_: PhotoRange | None) -> str | None:
    return range_ and str(range_)


T = TypeVar("T")


@dataclass(frozen=True)
class Preprocessing:
    """The steps of each input, by name, and the columns of CSV files for each feature."""

    HEAD: ClassVar = {"format": FORMAT}

    inputs: Mapping[str, Steps] = field(default_factory=dict)
    columns: IfSet[Columns | None] = None
    header: IfSet[HeaderRule | None] = None
    """Whether the first row of CSV files is a header; None: auto."""
    range: Annotated[PhotoRange | None, Written(if_set=True, by=_said)] = None
    """The value range of images whose steps do not determine it."""
    why: Hidden[str] = field(default="from --preprocess", compare=False)
    """The source of the preprocessing, as text."""
    chosen: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """The column of inputs, or several separated by commas, as --columns names them."""
    only_ranges: Hidden[bool] = field(default=False, compare=False)
    """Whether it was given as ranges such as `0..1`, which change no other known steps."""

    @property
    def rule(self) -> HeaderRule:
        """The rule for the header of CSV files."""
        return self.header or "auto"

    @property
    def states_only_tables(self) -> bool:
        """Whether it states no more than the header and the columns of tables."""
        rules = Preprocessing(header=self.header, chosen=self.chosen)
        return self == rules != Preprocessing()

    @property
    def states_only_axes(self) -> bool:
        """Whether it states the axes of samples and no steps, so that arrays can be fed as such."""
        plain = {name: Steps(batch_axis=item.batch_axis) for name, item in self.inputs.items()}
        has_axes = any(item.batch_axis is not None for item in self.inputs.values())
        return has_axes and self == Preprocessing(plain)

    def of(self, names: Iterable[str]) -> Steps:
        """Return the steps of the input with one of these names."""
        return next((self.inputs[name] for name in names if name in self.inputs), Steps())

    def of_photos(self, names: Iterable[str]) -> Steps:
        """Return the steps of an image input, with the range that applies to all images."""
        steps = self.of(names)
        return steps if steps.state_values or self.range is None else steps.into(self.range)

    def among(self, graph: Graph) -> "Preprocessing":
        """Return this preprocessing with inputs by node name.

        GraphError: a name is not an input of the graph, or an input is named twice.
        """
        known = names_of_inputs(graph)
        nodes = {name: names[0] for names in known.values() for name in names}
        inputs: dict[str, Steps] = {}
        for name, steps in self.inputs.items():
            if name not in nodes:
                raise unknown_name("input for the preprocessing", name, known)
            if nodes[name] in inputs:
                raise GraphError("given-twice", what="the preprocessing of input", name=nodes[name])
            inputs[nodes[name]] = steps
        return replace(self, inputs=inputs)


def with_header(given: Any, rule: HeaderRule, columns: Mapping[str, str] | None = None) -> Any:
    """Return a preprocessing, in any form, with a rule for headers and the columns of inputs.

    FileError, GraphError: the preprocessing cannot be read.
    """
    if rule == "auto" and not columns:
        return given
    declared = Preprocessing() if given is None else preprocessing_of(given)
    header = declared.header if rule == "auto" else rule
    return replace(declared, header=header, chosen=columns or declared.chosen)


def chosen_columns(given: Any) -> Mapping[str, str]:
    """Return the columns of inputs that an option names."""
    return given.chosen if isinstance(given, Preprocessing) else {}


def header_rule(given: Any) -> tuple[HeaderRule, bool]:
    """Return the rule of a preprocessing for headers, and whether it states no steps.

    FileError, GraphError: the preprocessing cannot be read.
    """
    if given is None:
        return "auto", True
    declared = preprocessing_of(given)
    return declared.rule, declared.states_only_tables


def load_preprocessing(path: str | os.PathLike[str]) -> Preprocessing:
    """Read a JSON file. FileError: it does not exist. GraphError: its content is invalid."""
    document = read_json(path, "preprocessing")
    try:
        return preprocessing_from(document)
    except GraphError as error:
        raise error.within(path) from None


def preprocessing_of(given: Any) -> Preprocessing:
    """Return a preprocessing from a Preprocessing, a JSON file, its content or JSON text.

    The text `0..1` means the range of all images, and `photo=0..1` that of one input.
    """
    if isinstance(given, Preprocessing):
        return given
    if not isinstance(given, str | os.PathLike):
        return preprocessing_from(given)
    text = os.fspath(given)
    if text.lstrip().startswith("{"):
        try:
            return preprocessing_from(json.loads(text))
        except (ValueError, RecursionError):
            raise GraphError("preprocess-not-json", got=text[:60]) from None
    return _of_ranges(text) or load_preprocessing(text)


def _ranges_of(given: Any) -> Preprocessing | None:
    """Return a preprocessing that was given as ranges; None for any other."""
    if isinstance(given, str):
        return _of_ranges(given)
    return given if isinstance(given, Preprocessing) and given.only_ranges else None


def _of_ranges(text: str) -> Preprocessing | None:
    """Return the ranges in `0..1` or `photo=0..1,other=-1..1`; None for any other text."""
    if (everywhere := range_from(text)) is not None:
        return Preprocessing(range=everywhere, only_ranges=True)
    inputs = {}
    for part in text.split(","):
        name, _, range_text = part.rpartition("=")
        range_ = range_from(range_text)
        if range_ is None or not name:
            return None
        inputs[name.strip()] = Steps().into(range_)
    return Preprocessing(inputs, only_ranges=True)


def with_batch_axes(graph: Graph, given: Any) -> tuple[Graph, Any]:
    """Return the graph with the axes of samples in its metadata, and the rest of a preprocessing.

    The rest is None if it only states axes. Axes that it does not state stay as they were known.
    FileError, GraphError: the preprocessing cannot be read, or an input has no such axis.
    """
    if given is None or _ranges_of(given) is not None:
        return graph, given
    declared = preprocessing_of(given)
    rest = None if declared.states_only_axes else declared
    stated = (
        declared.among(graph).inputs
        if any(item.batch_axis is not None for item in declared.inputs.values())
        else {}
    )
    known = known_preprocessing(graph).among(graph)
    inputs = dict(known.inputs)
    for name, item in stated.items():
        if item.batch_axis is not None:
            inputs[name] = replace(inputs.get(name, Steps()), batch_axis=item.batch_axis)
    if inputs == known.inputs:
        return graph, rest
    graph = graph.copy()
    graph.about = replace(about(graph), preprocessing=document(replace(known, inputs=inputs)))
    batch_axes(graph)
    return graph, rest


def preprocessing_by_graph(given: Any, graphs: Sequence[Graph]) -> list[Any]:
    """Return a preprocessing for each of several graphs whose inputs may have other names.

    A name that another graph has means the paired input (`paired_inputs`), unless the input is
    named itself. An unpaired name is skipped. GraphError: no graph has an input of this name.
    FileError: the preprocessing cannot be read.
    """
    if given is None or (_ranges_of(given) is not None and not chosen_columns(given)):
        return [given] * len(graphs)
    declared, known = preprocessing_of(given), [names_of_inputs(graph) for graph in graphs]
    every = {name for names in known for aliases in names.values() for name in aliases}
    for name in declared.inputs:
        if name not in every:
            nodes = {split(tensor)[0]: tensor for names in known for tensor in names}
            raise unknown_name("input for the preprocessing", name, nodes)
    for name in declared.chosen:
        if name not in every:
            raise unknown_name("input", name, sorted({split(t)[0] for n in known for t in n}))
    return [
        replace(
            declared,
            inputs=_of_pairs(declared.inputs, graph, graphs),
            chosen=_of_pairs(declared.chosen, graph, graphs),
        )
        for graph in graphs
    ]


def _of_pairs(values: Mapping[str, T], graph: Graph, graphs: Sequence[Graph]) -> dict[str, T]:
    """Return the values of the inputs of a graph, also by the names of their pairs in others."""
    names = names_of_inputs(graph)
    own = {name for aliases in names.values() for name in aliases}
    results = {name: value for name, value in values.items() if name in own}
    stated = {t for t, aliases in names.items() if not results.keys().isdisjoint(aliases)}
    for other in graphs:
        pairs = paired_inputs(other, graph) or {}
        for tensor, aliases in names_of_inputs(other).items():
            value = next((values[name] for name in aliases if name in values), None)
            if value is not None and tensor in pairs and pairs[tensor] not in stated:
                stated.add(pairs[tensor])
                results[names[pairs[tensor]][0]] = value
    return results


def states_only_axes(given: Any) -> bool:
    """Return whether a preprocessing, in any form, only states axes of samples."""
    return given is not None and preprocessing_of(given).states_only_axes


TRANSPOSE = "Give a model that transposes this input itself."
"""Advice where the samples have to be on the first axis."""


def refuse_batch_axes(graph: Graph | None, given: Any, what: str, advice: str = TRANSPOSE) -> None:
    """Raise GraphError if the samples of an input are not on its first axis, as `what` needs."""
    if graph is None:
        stated = {} if given is None else preprocessing_of(given).inputs
        axes = {name: item.batch_axis for name, item in stated.items() if item.batch_axis}
    else:
        axes = {**batch_axes(with_batch_axes(graph, given)[0])}
    for name, axis in axes.items():
        raise GraphError(
            "batch-axis-not-first", name=split(name)[0], axis=axis, what=what, advice=advice
        )


def declared_for(graph: Graph | None, given: Any = None) -> Preprocessing:
    """Return the preprocessing that was passed, or else that in the graph's metadata.

    A range such as `0..1` only replaces the range in the metadata. Chosen columns become the
    features of their inputs. FileError, GraphError: the preprocessing cannot be read, or columns
    are chosen for a graph that takes its samples on another axis than the first.
    """
    declared, chosen = _declared_for(graph, given), chosen_columns(given)
    if graph is None or not chosen:
        return declared
    advice = "A row of a table is a sample. Pass a .npz file of arrays in the layout of the inputs."
    refuse_batch_axes(graph, declared, "--columns", advice)
    declared = declared.among(graph)
    inputs = dict(declared.inputs)
    names = names_of_inputs(graph).values()
    nodes = {name: aliases[0] for aliases in names for name in aliases}
    if declared.columns is not None:
        raise GraphError("give-one", options=["--columns", '"columns" of --preprocess'])
    for name, text in chosen.items():
        if name not in nodes:
            raise unknown_name("input", name, [aliases[0] for aliases in names])
        if nodes[name] in chosen and nodes[name] != name:
            raise GraphError("given-twice", what="the column of the input", name=nodes[name])
        inputs[nodes[name]] = replace(inputs.get(nodes[name], Steps()), feature=text)
    return replace(declared, inputs=inputs, chosen=chosen)


def _declared_for(graph: Graph | None, given: Any) -> Preprocessing:
    known = known_preprocessing(graph)
    rule, is_plain = header_rule(given)
    if is_plain:
        return known if rule == "auto" else replace(known, header=rule)
    ranges = _ranges_of(given)
    if ranges is None or graph is None or known == Preprocessing():
        return _with_known_axes(preprocessing_of(given), graph, known)
    known, ranges = known.among(graph), ranges.among(graph)
    inputs = dict(known.inputs)
    for tensor, (name, *_) in names_of_inputs(graph).items():
        stated = ranges.of_photos([name])
        shape = type_and_shape(graph, tensor)[1]
        fits = shape is None or len(shape) == 4
        if stated.state_values and (fits or name in ranges.inputs):
            inputs[name] = replace(known.of([name]), scale=stated.scale, mean=stated.mean, std=())
    return replace(known, inputs=inputs, header=ranges.header or known.header, why=ranges.why)


def _with_known_axes(
    declared: Preprocessing, graph: Graph | None, known: Preprocessing
) -> Preprocessing:
    """Return a preprocessing with the known axes of samples where it states none."""
    if graph is None or all(item.batch_axis is None for item in known.inputs.values()):
        return declared
    declared = declared.among(graph)
    inputs = dict(declared.inputs)
    for name, item in known.among(graph).inputs.items():
        steps = inputs.get(name, Steps())
        if item.batch_axis is not None and steps.batch_axis is None:
            inputs[name] = replace(steps, batch_axis=item.batch_axis)
    return replace(declared, inputs=inputs)


def known_preprocessing(graph: Graph | None) -> Preprocessing:
    """Return the preprocessing in the model metadata file."""
    known = getattr(getattr(graph, "about", None), "preprocessing", None)
    return Preprocessing() if known is None else replace(preprocessing_from(known), why=BESIDE)


def preprocessing_from(document: Any) -> Preprocessing:
    """Return the preprocessing in a document. GraphError: the named field is invalid."""
    known = ("format", "columns", "header", "range", "inputs")
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise GraphError("not-preprocessing", format=FORMAT)
    for name in document:
        if name not in known:
            raise unknown_name("key", name, known)
    inputs, columns = document.get("inputs", {}), document.get("columns")
    if not isinstance(inputs, Mapping) or not isinstance(columns, Mapping | None):
        raise GraphError("needs-by-name", what="inputs and columns")
    range_ = document.get("range")
    if range_ is not None and not (isinstance(range_, str) and range_from(range_)):
        raise GraphError("unexpected", what="range", got=range_, expected='such as "0..1"')
    header = document.get("header")
    if header not in (None, *get_args(HeaderRule)):
        expected = ", ".join(get_args(HeaderRule))
        raise GraphError("unexpected", what="header", got=header, expected=f"one of {expected}")
    return Preprocessing(
        {str(name): _steps(str(name), item) for name, item in inputs.items()},
        None if columns is None else {str(k): _columns(str(k), v) for k, v in columns.items()},
        header,
        None if range_ is None else range_from(range_),
    )


def _steps(name: str, plain: Any) -> Steps:
    if not isinstance(plain, Mapping):
        raise GraphError("needs-by-name", what=f"the steps of '{name}'")
    known = tuple(field_.name for field_ in fields(Steps))
    for key in plain:
        if key not in known:
            raise unknown_name("step", key, known, nearest(str(key), known)).within(
                f"input '{name}'"
            )
    try:
        result = converted(plain, Steps)
    except GraphError as error:
        raise error.within(f"'{name}'") from None
    if 0 in result.std:
        raise GraphError("preprocessing-step-value", step="std", name=name, got=[*result.std])
    if result.dtype and not _is_type(result.dtype):
        raise GraphError("preprocessing-step-value", step="dtype", name=name, got=result.dtype)
    return result


def _is_type(name: str) -> bool:
    with contextlib.suppress(GraphError):
        return bool(numpy_type(name))
    return False


def _columns(name: str, value: Any) -> int | tuple[int, int]:
    if type(value) is int and value >= 0:
        return value
    if isinstance(value, list | tuple) and len(value) == 2 and all(type(v) is int for v in value):
        return (value[0], value[1])
    raise GraphError(
        "unexpected", what=f"the columns of '{name}'", got=value, expected="3 or [0, 3]"
    )
