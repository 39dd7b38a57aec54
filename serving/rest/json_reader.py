"""Parses JSON documents: small ones in this process, large ones in a child process.

Parsing holds the GIL and so blocks all other requests.
"""

import os
import pickle
import queue
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from deploykit.serving.protocol.errors import ServingError, reported
from deploykit.serving.rest.http_requests import Buffer
from deploykit.serving.rest.json_infer import InferDocument
from deploykit.serving.rest.json_requests import Document, Inputs, read
from deploykit.transforms.common.errors import Error
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.child_process import Worker
from deploykit.transforms.runtime.memory import give_back

LARGE = 512 << 10
"""Bytes; parsing such a document takes about 3 ms, less than Python's switch interval of 5 ms."""
PROCESSES = 2
"""Maximum number of processes; each may need twenty times the size of its document."""
_KEPT = 8 << 20  # bytes of a document after which memory is returned to the kernel
_NICER = 5  # inference has priority


class JsonReader:
    """Parses documents; its processes start with the first large one."""

    def __init__(self, large: int = LARGE, processes: int = PROCESSES) -> None:
        """Parse documents of `large` bytes or more in at most `processes` processes."""
        self._large = large
        self._closed = False
        self._idle: queue.LifoQueue[_ReadingProcess] = queue.LifoQueue()
        for _ in range(processes):
            self._idle.put(_ReadingProcess())

    def is_large(self, body: Buffer) -> bool:
        """Return whether another process parses a document."""
        return len(body) >= self._large

    def read(
        self, method: str, body: Buffer, inputs: Inputs | ServingError, seconds: float | None = None
    ) -> Document:
        """Return the result of `json_requests.read`, or raise its errors.

        ServingError: also if no process becomes free within `seconds`, or the process died.
        """
        if not self.is_large(body):
            return read(method, body, inputs)
        try:
            process = self._idle.get(timeout=seconds)
        except queue.Empty:
            raise ServingError("DEADLINE_EXCEEDED", "deadline-before-read") from None
        try:
            result = process.read(method, body, inputs)
        except Error:
            process.close()
            raise ServingError("RESOURCE_EXHAUSTED", "json-reader-died") from None
        finally:
            if self._closed:
                process.close()
            self._idle.put(process)
        if isinstance(result, ServingError):
            raise result
        return _unpacked(result)

    def close(self) -> None:
        """Stop the processes, those in use once they are done."""
        self._closed = True
        while not self._idle.empty():
            self._idle.get().close()


class _ReadingProcess:
    """A process that parses documents. It starts with the first one, and is replaced if it died."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def read(self, *requested: Any) -> Any:
        """Return the result of `LargeDocuments.read`. Error: the process died."""
        if self._worker is not None:
            try:
                return self._ask(*requested)
            except Error:  # it may have died long before
                self.close()
        self._worker = Worker(f"{__name__}:{LargeDocuments.__name__}")
        return self._ask(*requested)

    def close(self) -> None:
        """Stop the process."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def _ask(self, method: str, body: Buffer, inputs: Inputs | ServingError) -> Any:
        assert self._worker is not None
        result = self._worker.ask("read", method, pickle.PickleBuffer(body), inputs)
        if len(body) > _KEPT:
            self._worker.ask("rest")
        return result


class LargeDocuments:
    """Parses documents in a child process."""

    def __init__(self) -> None:
        os.nice(_NICER)

    def read(self, method: str, body: bytes, inputs: Inputs | ServingError) -> Any:
        """Return a document, or its ServingError."""
        try:
            return _packed(read(method, body, inputs))
        except Exception as error:
            return reported(error)

    def rest(self) -> None:
        """Return memory to the kernel, as the next document may arrive much later."""
        give_back()


@dataclass(frozen=True)
class _Texts:
    """Strings in one buffer: unpickling many small ones would hold the GIL again."""

    joined: bytes
    ends: Array
    shape: tuple[int, ...]

    def apart(self) -> list[bytes]:
        """Return the strings."""
        return [self.joined[start:end] for start, end in pairwise((0, *self.ends.tolist()))]


def _texts(texts: Sequence[bytes], shape: tuple[int, ...] = ()) -> _Texts:
    return _Texts(b"".join(texts), np.array(list(accumulate(map(len, texts))), np.int64), shape)


_Packed = tuple[str, Mapping[str, Array | _Texts], bool, _Texts, InferDocument]


def _packed(document: Document) -> _Packed:
    inputs = {
        alias: _texts(array.ravel().tolist(), array.shape) if array.dtype == object else array
        for alias, array in document.inputs.items()
    }
    return (
        document.signature, inputs, document.rows, _texts(document.examples), document.infer
    )  # fmt: skip


def _unpacked(packed: _Packed) -> Document:
    signature, inputs, rows, examples, infer = packed
    arrays = {
        alias: _array(item) if isinstance(item, _Texts) else item for alias, item in inputs.items()
    }
    return Document(signature, arrays, rows, examples.apart(), infer)


def _array(texts: _Texts) -> Array:
    array = np.empty(len(texts.ends), object)
    array[:] = texts.apart()
    return array.reshape(texts.shape)
