"""What a JSON document of TensorFlow Serving's REST API is made of, and what is wrong with one."""

import base64
import binascii
import json
from typing import Any

import numpy as np

from deploykit.serving.protocol.errors import refused
from deploykit.transforms.core.tensors import Array

BINARY = "b64"
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
MAX_SHOWN = 60
"""Characters of a value in a message."""


def signature_name(document: dict[str, Any]) -> str:
    """Return the signature that is asked for, or nothing."""
    name = document.get("signature_name", "")
    if type(name) is not str:
        raise refused("json-signature-name-type")
    return name


def is_binary(value: Any) -> bool:
    """Say whether a value is an object that holds bytes in base 64."""
    return type(value) is dict and len(value) == 1 and type(value.get(BINARY)) is str


def to_bytes(value: Any) -> bytes:
    """Return the bytes of a text or of a binary value. ServingError: it is no base 64."""
    try:
        if type(value) is str:
            return value.encode()
        text = "".join(value[BINARY].split()).rstrip("=")  # padding and line breaks are optional
        return binascii.a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
    except (binascii.Error, ValueError):
        raise refused("json-bytes-invalid", got=shown(value), key=BINARY) from None


def from_bytes(value: bytes, binary: bool) -> str | dict[str, str]:
    """Return bytes as text, or as a binary value where that is asked for or they are no text."""
    if not binary:
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    return {BINARY: base64.b64encode(value).decode()}


def narrowed(values: list[Any], dtype: Any) -> Array | None:
    """Return numbers as an array of a type of floats; None: one of them is too large for it."""
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
    """Return what JSON calls the type of a value, as TensorFlow Serving writes it."""
    if value is None or type(value) is bool:
        return {None: "Null", False: "False", True: "True"}[value]
    kinds: dict[type, str] = {dict: "Object", list: "Array", str: "String"}
    return kinds.get(type(value), "Number")


def shown(value: Any) -> str:
    """Return a value as a message shows it; lists and objects may be deep and long."""
    if type(value) is list:
        return f"a list of {len(value)}"
    if type(value) is dict:
        return f"an object of {len(value)}"
    text = json.dumps(value[:MAX_SHOWN] if type(value) is str else value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
