"""Protocol buffers as text, read from files with errors in a sentence."""

import re
from pathlib import Path
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)

from deploykit.transforms.core.errors import Error, nearest
from deploykit.transforms.core.files.reading import MOST_TEXT, read_bytes

# The official stubs lack these messages. A text names fields, never their numbers, so names and
# types are enough; the package is our own, not to collide with the official one.
MESSAGES = {
    "BatchingParameters": {
        "max_batch_size": "Int64Value",
        "batch_timeout_micros": "Int64Value",
        "max_enqueued_batches": "Int64Value",
        "num_batch_threads": "Int64Value",
        "thread_pool_name": "StringValue",
        "allowed_batch_sizes": "repeated int64",
        "pad_variable_length_inputs": "bool",
        "enable_large_batch_splitting": "BoolValue",
        "max_execution_batch_size": "Int64Value",
    },
    "PrometheusConfig": {"enable": "bool", "path": "string"},
    "MonitoringConfig": {"prometheus_config": "PrometheusConfig"},
    "SSLConfig": {
        "server_key": "string",
        "server_cert": "string",
        "custom_ca": "string",
        "client_verify": "bool",
    },
}
_OWN, _OFFICIAL = "deploykit.serving", "tensorflow.serving"
_SECRET = f"{_OWN}.SSLConfig"  # what is wrong in it may be a piece of a key, so it is not shown

_QUOTED_LINE = re.compile(r"^(\d+:\d+ : )'.*': (?=[A-Z])")
_NO_FIELD = re.compile(r'Message type "([\w.]+)" has no field named "(\w+)"')
_LONGEST = 300


class ConfigError(Error):
    """A configuration file that cannot be read as what it should be."""


def parse(path: Path, name: str, proto: Any = None) -> Any:
    """Return a text file as a message: `proto`, or one of the table above by its name.

    FileError: it cannot be read. ConfigError: it is no such text; line and column are named.
    """
    proto = _new(name) if proto is None else proto
    try:
        return text_format.Parse(read_bytes(path, MOST_TEXT, "configuration").decode(), proto)
    except UnicodeDecodeError:
        reason = "not UTF-8 text"
    except RecursionError:
        reason = "it is nested too deep"
    except text_format.ParseError as error:
        reason = _reason(error, proto)
    raise ConfigError("config-not-parsed", source=path, package=_OFFICIAL, name=name, reason=reason)


def _reason(error: text_format.ParseError, proto: Any) -> str:
    if proto.DESCRIPTOR.full_name == _SECRET:
        fields = ", ".join(field.name for field in proto.DESCRIPTOR.fields)
        return (f"{error.GetLine()}:{error.GetColumn()}: expected one of {fields} with its value, "
                "as in server_key: \"-----BEGIN ...\"")  # fmt: skip
    text = " ".join(_QUOTED_LINE.sub(r"\1", str(error)).split()).replace(" : ", ": ", 1)
    return text.replace(_OWN, _OFFICIAL)[:_LONGEST] + _hint(text, proto.DESCRIPTOR)


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


def _new(name: str) -> Any:
    return message_factory.GetMessageClass(_FILE.message_types_by_name[name])()


def _described() -> Any:
    """Return the table above as protobuf describes a file."""
    file = descriptor_pb2.FileDescriptorProto(
        name="deploykit/serving/configs.proto",
        package=_OWN,
        syntax="proto3",
        dependency=[wrappers_pb2.DESCRIPTOR.name],
    )
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), 1):
            message.field.add(name=field, number=number, **_kind(kind))
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindFileByName(file.name)


def _kind(kind: str) -> dict[str, Any]:
    proto = descriptor_pb2.FieldDescriptorProto
    *repeated, kind = kind.split()
    label = proto.LABEL_REPEATED if repeated else proto.LABEL_OPTIONAL
    if kind in _PLAIN:
        return {"label": label, "type": _PLAIN[kind]}
    package = _OWN if kind in MESSAGES else "google.protobuf"
    return {"label": label, "type": proto.TYPE_MESSAGE, "type_name": f".{package}.{kind}"}


_PLAIN = {
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
}
_FILE = _described()
