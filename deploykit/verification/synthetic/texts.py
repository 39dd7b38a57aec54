"""Strings that an input accepts: words of a vocabulary, images, Examples, numbers, raw bytes."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deploykit.transforms.common.errors import Error
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name, tensor_name
from deploykit.transforms.ir.ops import input_ports, op_defs, output_ports
from deploykit.transforms.ir.tensors import Array, encode, numpy_type
from deploykit.verification.synthetic import encoded_files
from deploykit.verification.synthetic.input_uses import Change, Use
from deploykit.verification.synthetic.input_uses import uses as uses_of

WORDS = [word.encode() for word in (
    "apple", "blue", "cloud", "door", "early", "fish", "green", "house", "island", "jump", "kind",
    "light", "moon", "night", "open", "paper", "quiet", "river", "stone", "tree", "under", "very",
    "water", "young",
)]  # fmt: skip
MAX_WORDS = 8  # in a text that is split into words

Make = Callable[["np.random.Generator"], bytes]
Values = Callable[[Graph, str, str, Sequence[int]], Array]  # (graph, tensor, dtype, sizes)

_PARSERS = ("ParseExample", "ParseExampleV2", "ParseSingleExample")


@dataclass(frozen=True)
class Meaning:
    """A generator of strings for an op, which inverts the decoding and splitting before it."""

    make: Make
    use: Use | None = None
    count: int = 0
    """Number of parts that a string is split into; 0 means any number."""

    def __call__(self, random: "np.random.Generator") -> bytes:
        """Return a string, encoded and joined for the nodes that decode and split it."""
        content = self.make(random)
        is_cut = False
        for change in self.use.changes() if self.use is not None else ():
            node = change.node
            if node.op == "DecodeBase64":
                content = encoded_files.web_base64(content)
            elif node.op == "DecodeCompressed":
                content = encoded_files.compressed(content, str(node.attr("compression_type", "")))
            elif node.op.startswith("StringSplit"):
                count = self.count or int(random.integers(1, MAX_WORDS, endpoint=True))
                more = [content if is_cut else self.make(random) for _ in range(count - 1)]
                content, is_cut = _separator(change).join([content, *more]), True
        return content


def meaning(uses: Sequence[Use], values: Values) -> Meaning:
    """Return a generator of strings for these uses; by default, of plain words.

    Strings that are decoded or parsed as numbers must be valid; those that are looked up need not.
    """
    for make in (_maker, _known_word):
        for use in uses:
            try:
                if (made := make(use, values)) is not None:
                    return Meaning(made, use, _width(use, uses))
            except (Error, ArithmeticError, IndexError, TypeError, ValueError):
                continue  # TensorFlow would refuse this node
    for use in uses:
        if use.node.op.startswith("StringSplit") and use.port == 0:
            cut = replace(use, step=Change(use.scope, use.node, use.step))
            return Meaning(lambda random: _word(WORDS, random), cut)
    packed = next((use for use in uses if any(True for _ in use.steps())), None)
    return Meaning(lambda random: _word(WORDS, random), packed)


def _separator(split: Change) -> bytes:
    """Return the separator of a StringSplit; the first version uses each of its characters."""
    constant = split.constant(1)
    result = b" " if constant is None else bytes(constant.value.reshape(-1)[0])
    return result[:1] if split.node.op == "StringSplit" else result or b" "


def _width(use: Use, uses: Sequence[Use]) -> int:
    """Return the number of numbers in a string, from the ops that read them; 0 means any."""
    if use.node.op != "StringToNumber":
        return 0
    after = uses_of(use.scope.graph, tensor_name(use.node.name, 0))
    cut = (use for use in uses if any(n.op.startswith("StringSplit") for n in use.steps()))
    for item in (*after, *cut):
        constant = item.constant(1) if item.port == 0 else None
        if constant is None:
            continue
        if item.node.op == "Reshape":
            sizes = constant.value.reshape(-1)
            return int(np.prod(sizes[sizes > 0]))
        if item.is_first_factor:
            return constant.shape[item.rows_axis]
    return 4


def strings(sizes: Sequence[int], make: Make, random: "np.random.Generator") -> Array:
    """Return an object array of generated strings."""
    result = np.empty(tuple(sizes), object)
    for place in np.ndindex(*sizes):
        result[place] = make(random)
    return result


def _word(words: Sequence[bytes], random: "np.random.Generator") -> bytes:
    return words[int(random.integers(len(words)))]


def _maker(use: Use, values: Values) -> Make | None:
    """Return a generator of strings for a node, or None if it accepts any string."""
    node, port = use.node, use.port
    if node.op in encoded_files.PICTURES and port == 0:
        return encoded_files.PICTURES[node.op]
    if node.op in _PARSERS and port == 0:
        return _example(use, values)
    if node.op == "DecodeCSV" and port == 0:
        return lambda random: _line(use, values)
    if node.op == "DecodeWav":
        samples, channels = node.attr("desired_samples", -1), node.attr("desired_channels", -1)
        sound = (encoded_files.SOUND if samples < 0 else samples, 1 if channels < 0 else channels)
        return lambda random: encoded_files.wav(random, *sound)
    if node.op == "StringToNumber":
        return _number(use, values)
    if node.op in ("DecodeRaw", "DecodePaddedRaw") and port == 0:
        count = _raw_bytes(use)
        return lambda random: random.bytes(count)
    if node.op == "ParseTensor":
        dtype = str(node.attr("out_type"))
        return lambda random: encode(
            random.uniform(-1, 1, ()).astype(numpy_type(dtype)), dtype
        ).SerializeToString()
    return None


def _number(use: Use, values: Values) -> Make:
    """Return a generator of valid numbers as text; only digits if the text is cut."""
    lengths = []
    for change in use.changes():
        if change.node.op == "Substr":
            ends = [change.constant(port) for port in (1, 2)]
            lengths.append(sum(4 if e is None else abs(int(e.value.max())) for e in ends))
        elif change.node.op == "StringJoin" or (
            change.node.op.startswith("StringSplit") and not _separator(change)
        ):
            lengths.append(1)
    if lengths:
        return lambda random: bytes(random.integers(ord("1"), ord("9"), max(lengths)).tolist())
    type_ = str(use.node.attr("out_type", "float32"))

    def make(_: "np.random.Generator") -> bytes:
        (value,) = values(use.scope.graph, use.node.name, type_, (1,)).tolist()
        return str(round(value, 4)).encode()

    return make


def _known_word(use: Use, values: Values) -> Make | None:
    """Return a generator of words from a table or a comparison, or None."""
    node = use.node
    constant, words = None, list[bytes]()
    if node.op in ("Equal", "NotEqual"):
        constant = use.constant(1 - use.port)
    elif node.op in ("LookupTableFind", "LookupTableFindV2") and use.port == 1:
        constant = table_keys(use)
    if constant is not None:
        words = [*constant.value.reshape(-1).tolist()]
        if len(words) == 1 and node.op not in ("LookupTableFind", "LookupTableFindV2"):
            words.append(next(word for word in WORDS if word != words[0]))
    return None if not words else lambda random: _word(words, random)


def table_keys(use: Use) -> Node | None:
    """Return the constant keys of a node's lookup table, or None."""
    scope, tensor = use.scope.resolved(use.node.data_inputs[0])
    graph = scope.graph
    names = {graph.source(tensor)} if producer_name(tensor) in graph else set()
    for table in map(producer_name, names):
        for reader in graph.readers(table):
            if reader.op.startswith(("InitializeTable", "LookupTableImport")):
                return scope.constant(reader.data_inputs[1])
        shared = graph[table].attr("shared_name")
        for other in graph if shared else ():
            if other.op.startswith(("InitializeTable", "LookupTableImport")):
                holder = graph.producer(other.data_inputs[0])
                if holder.attr("shared_name") == shared:
                    return scope.constant(other.data_inputs[1])
    return None


def _raw_bytes(use: Use) -> int:
    """Return the number of bytes for DecodeRaw, from the ops that read its output."""
    node = use.node
    item = numpy_type(str(node.attr("out_type"))).itemsize
    length = use.constant(1)
    if length is not None:
        return int(length.value)
    for reader in use.scope.graph.readers(node.name):
        if reader.op == "Reshape" and reader.data_inputs[0] == node.name:
            shape = use.scope.constant(reader.data_inputs[1])
            if shape is not None:
                sizes = shape.value.reshape(-1)
                return int(np.prod(sizes[sizes > 0])) * item
        if reader.op == "MatMul" and reader.data_inputs[0] == node.name:
            weights = use.scope.constant(reader.data_inputs[1])
            if weights is not None:
                return int(weights.shape[0]) * item
    return 16 * item


def _line(use: Use, values: Values) -> bytes:
    """Return a line of values for DecodeCSV."""
    node = use.node
    types: list[Any] = node.attr("OUT_TYPE") or []
    chosen = node.attr("select_cols") or range(len(types))
    columns = ["0"] * (max(chosen, default=-1) + 1)
    for place, (column, type_) in enumerate(zip(chosen, types, strict=False)):
        (value,) = values(use.scope.graph, tensor_name(node.name, place), type_, (1,)).tolist()
        columns[column] = value.decode(errors="replace") if type_ == "string" else str(value)
    text = [json.dumps(column) if set(column) & set(',"\n') else column for column in columns]
    return str(node.attr("field_delim", ",")).join(text).encode()


def _example(use: Use, values: Values) -> Make:
    """Return a generator of Examples with all features of a parser."""
    features = [*_dense(use), *_sparse(use)]

    def make(_: "np.random.Generator") -> bytes:
        return encoded_files.example({
            key: values(use.scope.graph, tensor, type_, sizes)
            for key, tensor, type_, sizes in features
        })  # fmt: skip

    return make


def _dense(use: Use) -> list[tuple[str, str, str, tuple[int, ...]]]:
    node = use.node
    shapes = node.attr("dense_shapes") or []
    types = node.attr("Tdense") or []
    outputs = output_ports(node, op_defs()[node.op])["dense_values"]
    return [
        (key, tensor_name(node.name, port), type_, tuple(2 if s < 0 else s for s in shape or ()))
        for key, port, type_, shape in zip(
            _keys(use, "dense"), outputs, types, shapes, strict=False
        )
    ]


def _sparse(use: Use) -> list[tuple[str, str, str, tuple[int, ...]]]:
    """Return the sparse and ragged features, with two values each."""
    node = use.node
    outputs = output_ports(node, op_defs()[node.op])
    names: list[tuple[str, str, str, tuple[int, ...]]] = []
    for kind, attr, output in (("sparse", "sparse_types", "sparse_values"),
                               ("ragged", "ragged_value_types", "ragged_values")):  # fmt: skip
        types = node.attr(attr) or []
        ports = outputs.get(output, range(0))
        for key, port, type_ in zip(_keys(use, kind), ports, types, strict=False):
            names.append((key, tensor_name(node.name, port), type_, (2,)))
    return names


def _keys(use: Use, kind: str) -> list[str]:
    """Return the feature names from an attribute, a constant each, or one constant."""
    node, name = use.node, f"{kind}_keys"
    listed = node.attr(name)
    if listed:
        return [str(key) for key in listed]
    ports = input_ports(node, op_defs()[node.op]).get(name, range(0))
    constants = [use.constant(port) for port in ports]
    return [
        key.decode() if isinstance(key, bytes) else str(key)
        for constant in constants
        if constant is not None
        for key in constant.value.reshape(-1).tolist()
    ]
