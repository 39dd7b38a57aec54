"""Documents that another process reads: the same arrays, the same refusals, whatever dies."""

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import orjson
import pytest

from deploykit.serving.protocol import codec
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.protos import Example
from deploykit.serving.protocol.signatures import Tensor
from deploykit.serving.rest.json_reader import JsonReader
from deploykit.serving.rest.json_requests import read
from tests.serving.rest.test_hostile_requests import BODIES
from tests.support import raises

TAKEN = {
    "serving_default": {
        "x": Tensor("x:0", "float32", (-1, 4)),
        "s": Tensor("s:0", "string", (-1,)),
    },
    "one": {"n": Tensor("n:0", "int64", (-1,))},
    "odd": {"c": Tensor("c:0", "complex64", (-1,))},
}
DOCUMENTS = {
    **BODIES,
    "rows": b'{"instances": [{"x": [1, 2.5, 3, NaN], "s": "a"}, {"x": [1, 2, 3, 4], "s": ""}]}',
    "columns": b'\xef\xbb\xbf{"inputs": {"x": [[1, 2, 3, 4]], "s": [["a", {"b64": "AP8="}]]}}',
    "named": b'{"signature_name": "one", "inputs": [1, 2, 3], "inputs": [4, 5]}',
    "repeated features": b'{"examples": [{"x": 1, "x": 2}], "examples": [{"x": 3}]}',
    "text behind": b'{"signature_name": "one", "inputs": [Inf, 1]} {"inputs": \xff',
    "too large": b'{"signature_name": "one", "inputs": [9223372036854775808]}',
    "ragged": b'{"inputs": {"x": [[1, 2], [3]]}}',
    "no such signature": b'{"signature_name": "two", "inputs": [1]}',
    "no name": b'{"signature_name": 2, "inputs": [1]}',
    "no such type": b'{"signature_name": "odd", "inputs": [1]}',
    "no object": b"[1]",
    "nothing": b"",
    "half": b'{"inputs": [1,',
    "no text": b'{"inputs": "\xff"}',
    "examples": b'{"context": {"u": 7}, "examples": [{"x": [1.5], "s": "a"}, {"n": 3}, {}]}',
    "wrong example": b'{"examples": [{"x": [1.5, "a"]}]}',
}


@pytest.fixture(scope="module")
def reader():
    with closing(JsonReader(large=0, processes=1)) as found:
        yield found


def outcome(act, *arguments):
    """Return plain data that tells what a document came to."""
    try:
        found = act(*arguments)
    except ServingError as error:
        return error.status, error.message
    inputs = {a: (v.dtype.name, v.shape, repr(v.tolist())) for a, v in found.inputs.items()}
    # The order of a map's entries on the wire differs from process to process.
    return found.signature, inputs, found.rows, [Example.FromString(e) for e in found.examples]


@pytest.mark.parametrize("method", ["predict", "classify"])
@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_is_read_elsewhere_is_the_same(reader, name, method):
    body = DOCUMENTS[name]
    expected = outcome(read, method, body, TAKEN)
    for form in (bytes, bytearray, lambda b: memoryview(bytearray(b))):
        assert outcome(reader.read, method, form(body), TAKEN) == expected
        if len(body) > 1 << 16:
            break


def test_the_model_is_looked_for_behind_the_document(reader):
    absent = ServingError("NOT_FOUND", "no such model")
    for body in (DOCUMENTS["named"], DOCUMENTS["half"], DOCUMENTS["no name"]):
        expected = outcome(read, "predict", body, absent)
        assert outcome(reader.read, "predict", body, absent) == expected


def process(reader: JsonReader) -> int:
    """Return the number of the process of a reader that has one."""
    found = reader._idle.queue[0]._worker
    return found.pid


def test_a_process_that_was_killed_is_replaced(reader):
    assert read_one(reader) == [1, 2, 3]
    before = process(reader)
    os.kill(before, signal.SIGKILL)
    assert read_one(reader) == [1, 2, 3]
    assert process(reader) != before
    assert read_one(reader) == [1, 2, 3]


def read_one(reader: JsonReader) -> list[int]:
    return reader.read("predict", DOCUMENTS["named"], TAKEN).inputs["n"].tolist()


def test_it_waits_no_longer_than_the_caller():
    with closing(JsonReader(large=0, processes=1)) as reader:
        kept = reader._idle.get()
        with raises(ServingError, "deadline-before-read") as error:
            read_one_in(reader, 0.01)
        assert error.value.status == "DEADLINE_EXCEEDED"
        reader._idle.put(kept)


def read_one_in(reader: JsonReader, seconds: float) -> object:
    return reader.read("predict", DOCUMENTS["named"], TAKEN, seconds)


def test_small_documents_are_read_at_once():
    with closing(JsonReader(large=1 << 20, processes=0)) as reader:
        assert read_one(reader) == [1, 2, 3]


def test_large_arrays_come_whole(reader):
    rows = np.random.default_rng(1).normal(size=(500, 4)).tolist()
    texts = ["x" * (n % 7) for n in range(500)]
    body = repr({"inputs": {"x": rows, "s": texts}}).replace("'", '"').encode()
    assert outcome(reader.read, "predict", body, TAKEN) == outcome(read, "predict", body, TAKEN)


@pytest.mark.sampled
def test_it_ends_with_the_server_however_that_ends():
    program = (
        "from tests.serving.rest.test_json_reader import *\n"
        "reader = JsonReader(large=0, processes=1)\n"
        "read_one(reader)\n"
        "print(process(reader), flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    child = Path(f"/proc/{int(parent.stdout.readline())}")
    modules = (child / "maps").read_text()
    assert "tensorflow/" not in modules
    parent.kill()
    parent.communicate()
    while child.exists() and ") Z " not in (child / "stat").read_text():
        time.sleep(0.01)


@pytest.mark.parametrize("count", [3, 4])
def test_more_strings_than_the_limit_are_refused(monkeypatch, count):
    monkeypatch.setattr(codec, "MAX_STRINGS", 3)
    tensor = {"datatype": "BYTES", "shape": [2], "data": ["a", ""]}
    rest = {**tensor, "shape": [count - 2], "parameters": {"binary_data_size": 99}}
    del rest["data"]
    v2 = {"inputs": [{**tensor, "name": "x"}, {**rest, "name": "y"}]}
    declared = {"serving_default": {"x": Tensor("x:0", "string", (-1,))}}
    v1 = [{"inputs": [""] * count}, {"instances": [{"x": ""}] * count}]
    for method, document in (("infer", v2), *(("predict", one) for one in v1)):
        body = orjson.dumps(document)
        if count == 3:
            assert read(method, body, declared).inputs["x"].dtype == object
            continue
        with raises(ServingError, "strings-too-many", count=4, most=3):
            read(method, body, declared)
