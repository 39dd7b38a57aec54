"""Parses JSON request bodies as TensorFlow Serving's parser does."""

import base64
import binascii
import codecs
import json
import math
import re
from itertools import chain
from typing import Any

import numpy as np
import orjson

from deploykit.serving.protocol.errors import MAX_SHOWN, refused, shown
from deploykit.transforms.ir.tensors import Array

BINARY = "b64"
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def signature_name(document: dict[str, Any]) -> str:
    """Return the signature name of a request, or ""."""
    name = document.get("signature_name", "")
    if type(name) is not str:
        raise refused("json-signature-name-type")
    return name


def is_binary(value: Any) -> bool:
    """Return whether a value is an object with base64-encoded bytes."""
    return type(value) is dict and len(value) == 1 and type(value.get(BINARY)) is str


def to_bytes(value: Any) -> bytes:
    """Return the bytes of a string or a base64 object. ServingError: it is not valid base64."""
    try:
        if type(value) is str:
            return value.encode()
        text = "".join(value[BINARY].split()).rstrip("=")  # padding and line breaks are optional
        return binascii.a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
    except (binascii.Error, ValueError):
        raise refused("json-bytes-invalid", got=shown(value), key=BINARY) from None


def from_bytes(value: bytes, binary: bool) -> str | dict[str, str]:
    """Return bytes as text, or as a base64 object if `binary` is set or they are not UTF-8."""
    if not binary:
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    return {BINARY: base64.b64encode(value).decode()}


def narrowed(values: list[Any], dtype: Any) -> Array | None:
    """Return numbers as an array of a float dtype; None: one of them exceeds its range."""
    try:
        wide = np.array(values, np.float64)
    except OverflowError:
        return None
    with np.errstate(over="ignore"):
        array = wide.astype(dtype)
    if array.dtype != np.float64 and (np.isinf(array) != np.isinf(wide)).any():
        return None
    return array


def kind(value: Any) -> str:
    """Return the JSON type name of a value, as TensorFlow Serving writes it."""
    if value is None or type(value) is bool:
        return {None: "Null", False: "False", True: "True"}[value]
    kinds: dict[type, str] = {dict: "Object", list: "Array", str: "String"}
    return kinds.get(type(value), "Number")


# An unclosed string ends with the text, so that a search takes linear time.
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_STRINGS = re.compile(_STRING.encode(), re.DOTALL)
_LITERALS = re.compile(rf"{_STRING}|Inf(?!inity)|-NaN", re.DOTALL)
_SPELLINGS = {"Inf": "Infinity", "-NaN": "NaN"}  # as Python's parser expects them
_INT64, _UINT64 = 1 << 63, 1 << 64
_Pairs = list[tuple[str, Any]]


def parse(body: bytes | bytearray | memoryview, last_feature: bool = False) -> dict[str, Any]:
    """Return the object that a body starts with; of a repeated key, the first value is used.

    With `last_feature`, that is only so for keys of the document. In nested objects the last value
    is used, as TensorFlow Serving does for tf.Examples.
    ServingError: it is not JSON, or not an object.
    """
    text = bytes(body)
    if text.startswith(codecs.BOM_UTF8):
        text = text[len(codecs.BOM_UTF8) :]
    if not text:
        raise refused("json-empty")
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        document = _parse_leniently(text, last_feature)
    else:
        if _repeats_a_key(document, text):
            document = _parse_leniently(text, last_feature)
    if type(document) is not dict:
        raise refused("json-not-object", got=shown(document))
    return document


def _repeats_a_key(document: Any, text: bytes) -> bool:
    """Compare the number of parsed members with the number of colons outside strings."""
    colons = text.count(b":")
    members = _count_members(document, colons)
    return members < colons and members < _STRINGS.sub(b"", text).count(b":")


def _count_members(document: Any, most: int) -> int:
    """Count the members of all objects, up to about `most`."""
    count, level = 0, [document]
    while level:
        objects = [item for item in level if type(item) is dict]
        count += sum(map(len, objects))
        if count >= most:
            break
        lists = (item for item in level if type(item) is list)
        level = list(chain.from_iterable(chain(lists, (object_.values() for object_ in objects))))
    return count


def _parse_leniently(text: bytes, last_feature: bool) -> Any:
    """Parse with Python's json module."""
    objects = _Objects(last_feature)
    decoder = json.JSONDecoder(
        object_pairs_hook=objects.make, parse_float=_finite, parse_int=_integer
    )
    result = text.decode(errors="surrogateescape").lstrip(" \t\r\n")
    if "Inf" in result or "-NaN" in result:
        result = _LITERALS.sub(lambda match: _SPELLINGS.get(match[0], match[0]), result)
    try:
        document, end = decoder.raw_decode(result)
        result[:end].encode()
        if "\\ud" in result[:end].lower():
            json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise refused("json-nested-too-deep") from None
    except UnicodeEncodeError:
        raise refused("json-not-utf8") from None
    except ValueError as error:
        raise refused("json-not-parsed", reason=error) from None
    return objects.outermost if type(document) is dict else document


class _Objects:
    """Builds objects from their members, the innermost first."""

    def __init__(self, last: bool) -> None:
        """`last`: use the last value of a repeated key, except in the outermost object."""
        self._last = last
        self._pairs: _Pairs = []

    def make(self, pairs: _Pairs) -> dict[str, Any]:
        """Return an object of these members."""
        self._pairs = pairs
        if len(pairs) > 1 and all(key == BINARY for key, _ in pairs):
            return {BINARY: None}  # a base64 object has one member
        return dict(pairs) if self._last else _first_values(pairs)

    @property
    def outermost(self) -> dict[str, Any]:
        """The last object that was built."""
        return _first_values(self._pairs)


def _first_values(pairs: _Pairs) -> dict[str, Any]:
    results = dict(pairs)
    if len(results) < len(pairs):
        results.update(reversed(pairs))
    return results


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"number {text[:MAX_SHOWN]} is too large")
    return number


def _integer(text: str) -> int | float:
    """Return a number; beyond 64 bits it is a float, as in RapidJSON and orjson."""
    if len(text) > len(str(_UINT64)):
        return _finite(text)
    number = int(text)
    return number if -_INT64 <= number < _UINT64 else float(number)
