"""The messages of TensorFlow Serving, and text files of messages, such as BatchingParameters."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import message_factory, text_format

from deploykit.transforms.common.errors import Error, nearest
from deploykit.transforms.engines.engines import MAX_BATCH, MAX_THREADS
from deploykit.transforms.ir.protos import private_messages, private_pool
from deploykit.transforms.untrusted.files import MAX_TEXT, read_bytes

MODEL_SERVICE = "tensorflow.serving.ModelService"
PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
_OF_TENSORFLOW = ("Example", "TensorProto")


def __getattr__(name: str) -> Any:
    """Return the class of a message by name, such as `PredictRequest`."""
    package = "tensorflow" if name in _OF_TENSORFLOW else "tensorflow.serving"
    try:
        private_message = globals()[name] = private_messages(package, [name])[name]
    except KeyError:
        raise AttributeError(f"unknown message {package}.{name}") from None
    return private_message


def methods_of(service: str) -> dict[str, tuple[Any, Any]]:
    """Return the request and response messages of each method of a service, by name."""
    message = message_factory.GetMessageClass
    methods = private_pool().FindServiceByName(service).methods
    return {
        method.name: (message(method.input_type), message(method.output_type)) for method in methods
    }


_PACKAGE = "tensorflow.serving"
_SECRET = f"{_PACKAGE}.SSLConfig"  # errors in it may quote a key, so they are not shown

_QUOTED_LINE = re.compile(r"^(\d+:\d+ : )'.*': (?=[A-Z])")
_NO_FIELD = re.compile(r'Message type "([\w.]+)" has no field named "(\w+)"')
_LONGEST = 300


class ConfigError(Error):
    """A configuration file that cannot be parsed."""


def parse(path: Path, name: str, proto: Any = None) -> Any:
    """Return a text file as a message: `proto`, or one of `configs.proto` by its name.

    FileError: it cannot be read. ConfigError: it is not valid, with line and column.
    """
    proto = private_messages(_PACKAGE, [name])[name]() if proto is None else proto
    try:
        return text_format.Parse(read_bytes(path, MAX_TEXT, "configuration").decode(), proto)
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
    """Return a hint with the field that is most similar to an unknown one."""
    missing = _NO_FIELD.search(text)
    if not missing:
        return ""
    messages = [descriptor]
    for message in messages:  # grows by nested messages
        if message.full_name == missing[1]:
            return nearest(missing[2], [field.name for field in message.fields])
        inside = [field.message_type for field in message.fields if field.message_type]
        messages += [item for item in inside if item not in messages]
    return ""


_MAX_MICROS = 3_600_000_000  # an hour
_BOUNDS = {
    "max_batch_size": (1, MAX_BATCH),
    "max_execution_batch_size": (1, MAX_BATCH),
    "max_enqueued_batches": (1, 1_000_000_000),
    "num_batch_threads": (1, MAX_THREADS),
    "batch_timeout_micros": (0, _MAX_MICROS),
}
"""The allowed range of each number."""


@dataclass(frozen=True)
class Batching:
    """The batching settings. `num_batch_threads` None: one per slot."""

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int | None = None
    allowed_batch_sizes: tuple[int, ...] = ()
    pad_variable_length_inputs: bool = False
    enable_large_batch_splitting: bool = False
    max_execution_batch_size: int | None = None
    thread_pool_name: str = "batch_threads"
    """The label of queueing times in metrics, as in TensorFlow Serving; it names no actual pool."""

    @property
    def largest(self) -> int:
        """The size of the largest batch that runs."""
        split = self.enable_large_batch_splitting and self.max_execution_batch_size
        return split or self.max_batch_size


def read_batching(path: Path) -> Batching:
    """Read a file of BatchingParameters. FileError, ConfigError: as in `read_models`."""
    proto = parse(path, "BatchingParameters")
    given = {field.name: getattr(value, "value", value) for field, value in proto.ListFields()}
    given["allowed_batch_sizes"] = tuple(proto.allowed_batch_sizes)
    batching = Batching(**given)
    for name, (least, most) in _BOUNDS.items():
        value = getattr(batching, name)
        if value is not None and not least <= value <= most:
            raise ConfigError(
                "out-of-range", source=path, name=name, expected=f"{least} to {most}", got=value
            )
    if batching.largest > batching.max_batch_size:
        raise ConfigError(
            "batching-execution-size",
            source=path,
            largest=batching.largest,
            limit=batching.max_batch_size,
        )
    _check_allowed(path, batching)
    return batching


def _check_allowed(path: Path, batching: Batching) -> None:
    sizes = batching.allowed_batch_sizes
    if list(sizes) != sorted({size for size in sizes if size > 0}):
        raise ConfigError(
            "unexpected",
            source=path,
            what="allowed_batch_sizes",
            got=sizes,
            expected="positive numbers in increasing order",
        )
    if sizes and sizes[-1] != batching.largest:
        raise ConfigError(
            "batching-last-size", source=path, got=sizes[-1], expected=batching.largest
        )
