"""Bodies of requests -> JSON objects, read as TensorFlow Serving's parser (RapidJSON) reads them.

orjson reads strict JSON. Python's slower parser reads what TensorFlow Serving takes beyond it:
`NaN`, `Inf` and `Infinity`, text behind the document, and objects with a repeated key.
"""

import codecs
import json
import math
import re
from itertools import chain
from typing import Any

import orjson

from deploykit.serving.protocol.errors import refused
from deploykit.serving.rest.json_values import BINARY, MAX_SHOWN, shown

# An unclosed string ends with the text, so that a search takes linear time.
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_STRINGS = re.compile(_STRING.encode(), re.DOTALL)
_LITERALS = re.compile(rf"{_STRING}|Inf(?!inity)|-NaN", re.DOTALL)
_INT64, _UINT64 = 1 << 63, 1 << 64
_Pairs = list[tuple[str, Any]]


def parse(body: bytes | bytearray | memoryview, last_feature: bool = False) -> dict[str, Any]:
    """Return the object that a body starts with; of a repeated key, the first value counts.

    With `last_feature`, this holds for the keys of the document alone, and the last value counts
    in the objects inside: TensorFlow Serving reads tf.Examples so.
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
    """Compare the members that were read with the colons outside of strings, one for each."""
    colons = text.count(b":")
    members = _count_members(document, colons)
    return members < colons and members < _STRINGS.sub(b"", text).count(b":")


def _count_members(document: Any, most: int) -> int:
    """Count the members of all objects; stop looking at `most`."""
    count, level = 0, [document]
    while level:
        objects = [each for each in level if type(each) is dict]
        count += sum(map(len, objects))
        if count >= most:
            break
        lists = (each for each in level if type(each) is list)
        level = list(chain.from_iterable(chain(lists, (each.values() for each in objects))))
    return count


def _parse_leniently(text: bytes, last_feature: bool) -> Any:
    """Parse with Python's own parser."""
    objects = _Objects(last_feature)
    decoder = json.JSONDecoder(
        object_pairs_hook=objects.make, parse_float=_finite, parse_int=_integer
    )
    found = text.decode(errors="surrogateescape").lstrip(" \t\r\n")
    if "Inf" in found or "-NaN" in found:
        found = _LITERALS.sub(_spelled_out, found)
    try:
        document, end = decoder.raw_decode(found)
        found[:end].encode()
        if "\\ud" in found[:end].lower():
            json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise refused("json-nested-too-deep") from None
    except UnicodeEncodeError:
        raise refused("json-not-utf8") from None
    except ValueError as error:
        raise refused("json-not-parsed", reason=error) from None
    return objects.outermost if type(document) is dict else document


class _Objects:
    """Makes objects of their members, the innermost first."""

    def __init__(self, last: bool) -> None:
        """`last`: which value of a repeated key counts, but in the outermost object."""
        self._last = last
        self._pairs: _Pairs = []

    def make(self, pairs: _Pairs) -> dict[str, Any]:
        """Return an object."""
        self._pairs = pairs
        if len(pairs) > 1 and all(key == BINARY for key, _ in pairs):
            return {BINARY: None}  # bytes in base64 have one member
        return dict(pairs) if self._last else _first_values(pairs)

    @property
    def outermost(self) -> dict[str, Any]:
        """The object that was made last."""
        return _first_values(self._pairs)


def _first_values(pairs: _Pairs) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        found.update(reversed(pairs))
    return found


def _spelled_out(match: re.Match[str]) -> str:
    """Return a literal as Python's parser knows it, and a string as it is."""
    return {"Inf": "Infinity", "-NaN": "NaN"}.get(match[0], match[0])


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
