"""Writes the recommended tf.data pipeline for data as Python code that does not use deploykit."""

import inspect
import json
import keyword
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploykit.data.apply_preprocessing import checked_cast, may_lose
from deploykit.data.data import Data
from deploykit.data.pipeline import Pipeline
from deploykit.data.preprocessing import Steps
from deploykit.data.preprocessing_plan import is_computed, keeps_files, result_of
from deploykit.data.tfdata import MEMORY, PREFETCHED, nearby
from deploykit.records.examples import Feature
from deploykit.records.index import shard_name
from deploykit.storage.image_files import START_BYTES, image_ends, image_formats
from deploykit.storage.image_folders import LABELS
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.node import split

_TAKEN = {
    "tf",
    "np",
    "found",
    "numbers",
    "lines",
    "middle",
    "arrays",
    "examples",
    "example",
    "file",
    "checked_cast",
}


@dataclass(frozen=True)
class _Input:
    """One item of the value that the written `parse` returns: statements and an expression."""

    key: str
    lines: tuple[str, ...]
    value: str
    result: Feature


def written(pipeline: Pipeline) -> str:
    """Return the Python code of a pipeline. GraphError: a name cannot be written in the code."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["quoted"] = _quoted
    data = pipeline.data
    inputs = _inputs(pipeline)
    return environment.get_template("tfdata.py.jinja").render(
        data=data,
        inputs=inputs,
        features=pipeline.features,
        specs={name: _spec(item) for name, item in pipeline.features.items()},
        single=data.kind == "arrays" or not Path(data.path).is_dir(),
        batch=pipeline.batch,
        rest=", drop_remainder=True" if pipeline.whole else "",
        one_by_one=pipeline.one_by_one,
        padded=pipeline.padded,
        checked_cast=_checked_cast()
        if any("checked_cast(" in line for each in inputs for line in each.lines)
        else "",
        cuts=any(step.crop and not step.resize for step in pipeline.steps.values()),
        width=data.width if data.kind == "csv" else 0,
        packed=f", {_quoted(data.compression)}" if data.compression else "",
        shards=_shards(data),
        labels=data.class_numbers if data.kind == "images" else {},
        listed=LABELS if Path(data.path, LABELS).exists() else "",
        ends=image_ends(),
        starts=[each.start.decode("ascii") for each in image_formats()],
        start_bytes=START_BYTES,
        threads=pipeline.threads,
        deterministic=pipeline.threads == 1,
        shuffle=pipeline.shuffle is not None,
        seed=pipeline.shuffle or 0,
        nearby=nearby(data),
        cache=pipeline.cache,
        cache_file=_quoted(pipeline.cache) if pipeline.cache not in ("", MEMORY) else "",
        buckets=list(pipeline.buckets),
        long=next((input_.key for input_ in inputs if None in input_.result.shape), ""),
        private_threads=pipeline.private_threads,
        prefetched=PREFETCHED,
    )


def _checked_cast() -> str:
    """Return the source of `checked_cast`, for a file that imports TensorFlow."""
    text = inspect.getsource(checked_cast).replace("    import tensorflow as tf\n\n", "")
    return text.replace("values: Any", "values: tf.Tensor").replace("-> Any", "-> tf.Tensor")


def _inputs(pipeline: Pipeline) -> list[_Input]:
    result, used = [], set(_TAKEN)
    for tensor, steps in pipeline.steps.items():
        feature = pipeline.features[steps.feature]
        name = re.sub(r"\W", "_", split(tensor)[0])
        while name in used or keyword.iskeyword(name) or not name.isidentifier():
            name = f"{name}_" if name[:1].isalpha() else f"input_{name}"
        used.add(name)
        key = _quoted(tensor.removesuffix(":0"))
        source = _source(pipeline.data, steps.feature)
        dtype = _dtype(pipeline.data, feature)
        lines = tuple(_statements(name, source, steps, feature, dtype, pipeline.one_by_one))
        result.append(_Input(key, lines, name if lines else source, result_of(steps, feature)))
    return result


def _source(data: Data, feature: str) -> str:
    """Return the expression for a feature in the written `parse`."""
    if data.kind == "csv":
        columns = data.columns[feature]
        if isinstance(columns, int):
            return f"numbers[:, {columns}]"
        return f"numbers[:, {columns[0]}:{columns[1]}]"
    if data.kind == "images":
        return "label" if feature == "label" else "tf.io.read_file(file)"
    return f"found[{_quoted(feature)}]"


def _dtype(data: Data, feature: Feature) -> str:
    """Return the dtype of a feature before its steps."""
    is_label = data.kind == "images" and not feature.content
    return "int32" if is_label else feature.dtype  # as TensorFlow converts a list of integers


def _statements(
    name: str, source: str, steps: Steps, feature: Feature, dtype: str, one_by_one: bool
) -> list[str]:
    """Return the steps of an input as statements, like those of `apply_preprocessing.in_graph`."""
    if keeps_files(steps, feature):
        return []
    said = [source]  # each later statement reads the result of the one before
    if feature.content == "image":
        said.append(f"tf.io.decode_image({{}}, {steps.channels}, expand_animations=False)")
        dtype = "uint8"
    elif feature.content == "raw":
        said.append(f"tf.io.decode_raw({{}}, tf.{feature.dtype})")
        sizes = [-1 if size is None else size for size in feature.shape]
        said.append(f"tf.reshape({{}}, {sizes if one_by_one else [-1, *sizes]})")
    if steps.split is not None:
        said.append(f"tf.strings.split({{}}, {_quoted(steps.split)})" if steps.split
                    else "tf.strings.split({})")  # fmt: skip
    if steps.length is not None:
        said.append(f"{{}}[:{steps.length}]")
    if steps.resize is not None:
        resize = "tf.compat.v1.image.resize" if steps.corners else "tf.image.resize"
        said.append(f"{resize}({{}}, {list(steps.resize)})")
        dtype = "float32"
    if steps.crop is not None:
        said += _cropped(steps.crop, steps.resize)
    computed = [
        f"{{}} {sign} {_numbers(values)}"
        for sign, values in (("*", steps.scale), ("-", steps.mean), ("/", steps.std))
        if values not in (None, ())
    ]
    if computed and dtype != "float32":
        said.append("tf.cast({}, tf.float32)")
    said += computed
    dtype = "float32" if computed else dtype
    if may_lose(dtype, steps.dtype):
        said.append(f'checked_cast({{}}, "{steps.dtype}", {is_computed(steps, feature)})')
    elif steps.dtype != dtype:
        said.append(f"tf.cast({{}}, tf.{steps.dtype})")
    if len(said) == 1:
        return []
    lines = [f"{name} = {said[1].format(said[0])}"]
    lines += [f"{name} = {item.format(name)}" for item in said[2:]]
    if feature.content == "image":  # decode_image does not set the shape
        lines.insert(1, f"{name}.set_shape([None, None, {steps.channels}])")
    return lines


def _cropped(crop: tuple[int, int], resize: tuple[int, int] | None) -> list[str]:
    """Return the statements that crop the middle."""
    height, width = crop
    if resize is not None:
        top, left = (resize[0] - height) // 2, (resize[1] - width) // 2
        return [f"{{}}[..., {top}:{top + height}, {left}:{left + width}, :]"]
    return [f"middle({{}}, {height}, {width})"]


def _numbers(values: Any) -> str:
    """Return a number, or a list with one number for each channel, as Python code."""
    if isinstance(values, tuple):
        return str(values[0]) if len(values) == 1 else str(list(values))
    inverse = round(1 / values) if 0 < values < 1 else 0
    is_long = len(str(values)) > len(f"(1 / {inverse})")
    return f"(1 / {inverse})" if is_long and inverse and 1 / inverse == values else str(values)


def _spec(feature: Feature) -> str:
    """Return the feature spec for `parse_example` as Python code, as in `tfdata.example_spec`."""
    if feature.content:
        return "tf.io.FixedLenFeature([], tf.string)"
    if None in feature.shape:
        return f"tf.io.RaggedFeature(tf.{feature.dtype})"
    return f"tf.io.FixedLenFeature({list(feature.shape)}, tf.{feature.dtype})"


def _shards(data: Data) -> str:
    """Return the names of the shards as a Python expression."""
    if data.kind != "records":
        return ""
    names = [Path(file).name for file in data.files]
    if not data.name:
        return f"[{', '.join(map(_quoted, names))}]"
    name, count = names[0].rpartition("-00000-of-")[0], len(names)
    if names != [shard_name(name, number, count) for number in range(count)]:
        raise GraphError("shards-incomplete", source=data.path, name=names[0])
    for character in "{}":
        name = name.replace(character, character * 2)
    return f"[f{_quoted(f'{name}-{{n:05}}-of-{count:05}.tfrecord')} for n in range({count})]"


def _quoted(text: str) -> str:
    """Return a text as a Python literal, quoted as formatters do."""
    if '"' in text and "'" not in text:
        return repr(text)
    return json.dumps(text, ensure_ascii=not text.isprintable())
