"""Protocol buffers as text, read from files with errors in a sentence."""

import re
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from deploykit.transforms.core.errors import Error, nearest
from deploykit.transforms.core.files.reading import MOST_TEXT, read_bytes
from deploykit.transforms.core.protobuf.private_pool import private_messages

_PACKAGE = "tensorflow.serving"
_SECRET = f"{_PACKAGE}.SSLConfig"  # what is wrong in it may be a piece of a key, so it is not shown

_QUOTED_LINE = re.compile(r"^(\d+:\d+ : )'.*': (?=[A-Z])")
_NO_FIELD = re.compile(r'Message type "([\w.]+)" has no field named "(\w+)"')
_LONGEST = 300


class ConfigError(Error):
    """A configuration file that cannot be read as what it should be."""


def parse(path: Path, name: str, proto: Any = None) -> Any:
    """Return a text file as a message: `proto`, or one of `configs.proto` by its name.

    FileError: it cannot be read. ConfigError: it is no such text; line and column are named.
    """
    proto = private_messages(_PACKAGE, [name])[name]() if proto is None else proto
    try:
        return text_format.Parse(read_bytes(path, MOST_TEXT, "configuration").decode(), proto)
    except UnicodeDecodeError:
        reason = "not UTF-8 text"
    except RecursionError:
        reason = "it is nested too deep"
    except text_format.ParseError as error:
        reason = _reason(error, proto)
    raise ConfigError("config-not-parsed", source=path, package=_PACKAGE, name=name, reason=reason)


def _reason(error: text_format.ParseError, proto: Any) -> str:
    if proto.DESCRIPTOR.full_name == _SECRET:
        fields = ", ".join(field.name for field in proto.DESCRIPTOR.fields)
        return (f"{error.GetLine()}:{error.GetColumn()}: expected one of {fields} with its value, "
                "as in server_key: \"-----BEGIN ...\"")  # fmt: skip
    text = " ".join(_QUOTED_LINE.sub(r"\1", str(error)).split()).replace(" : ", ": ", 1)
    return text[:_LONGEST] + _hint(text, proto.DESCRIPTOR)


def _hint(text: str, descriptor: Any) -> str:
    """Return which field may have been meant by one that does not exist."""
    missing = _NO_FIELD.search(text)
    if not missing:
        return ""
    messages = [descriptor]
    for message in messages:  # and those inside it
        if message.full_name == missing[1]:
            return nearest(missing[2], [field.name for field in message.fields])
        inside = [field.message_type for field in message.fields if field.message_type]
        messages += [each for each in inside if each not in messages]
    return ""
