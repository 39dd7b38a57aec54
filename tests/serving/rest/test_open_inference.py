"""The Open Inference Protocol over HTTP: paths, bodies and binary data, right and wrong."""

import gzip
import json
import re

import numpy as np
import pytest

from deploykit.serving.protocol.open_inference import TYPES
from tests import pairwise
from tests.serving.infer_callers import (
    LENGTH,
    answer_of,
    array_of,
    document_of,
    http_ask,
)
from tests.serving.infer_messages import raw_of
from tests.support import Containing, assert_golden, because, says, shows

INFER = "/v2/models/half_plus_two/infer"
ECHO = "/v2/models/echo/infer"
SWAPPED = {"signature_name": "swapped"}
X = {"name": "x", "datatype": "FP32", "shape": [1, 1]}


def post(inference, body, path=INFER, **headers):
    """Return the status and the decoded body."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    status, found, _ = http_ask(inference.server, "POST", path, content, **headers)
    return status, found


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2x", 404), ("GET", "/v2/models", 404), ("GET", "/v2/models/", 404),
        ("GET", "/v2/models/echo/", 200), ("GET", "/v2/models/echo?x=1", 200),
        ("GET", "/v2/models/echo/other", 404), ("GET", "/v2/models/echo/versions", 404),
        ("GET", "/v2/models/echo/versions/1/other", 404), ("GET", "/v2/health", 404),
        ("GET", "/v2/health/other", 404), ("GET", "/v3/models/echo", 404),
        ("GET", "/V2/models/echo", 404), ("GET", "/v2/models/echo/READY", 404),
        ("GET", "/v2/models/%65cho/versions/%31", 200), ("GET", "/v2/models/e%2Fo", 404),
        ("GET", "/v2/models/..%2fecho", 404), ("GET", "//v2/models/echo", 404),
        ("POST", "/v2/health/live", 404), ("POST", "/v2/models/echo", 400), ("POST", "/v2", 400),
        ("GET", ECHO, 400), ("PUT", ECHO, 400), ("DELETE", "/v2/models/echo", 400),
        ("POST", "/v2/models/echo/ready", 400), ("POST", "/v2/models/echo/versions/infer", 400),
        ("POST", "/v2/repository/index", 404), ("POST", "/v2/models/echo:infer", 400),
    ],
)  # fmt: skip
def test_paths_and_methods(inference, method, path, status):
    found, body, _ = http_ask(inference.server, method, path, b"{}" if method != "GET" else None)
    assert found == status, body
    assert status == 200 or list(body) == ["error"]


def one(**fields):
    """Return a document with one input, x of shape [1, 1], in which these fields are others."""
    return {"inputs": [{**X, **fields}]}


def binary(size, **fields):
    return one(parameters={"binary_data_size": size}, **fields)


REFUSED = [
    "", "{", [], {}, {"inputs": None}, {"inputs": [1]}, {"inputs": [{}]},
    {"inputs": [{"name": "x"}]},
    one(datatype="FLOAT"), {"inputs": [{"name": "x", "datatype": "FP32", "data": [1]}]},
    one(shape=[1, True], data=[1]), one(shape=[1.0, 1], data=[1]), one(shape=[1, -1], data=[1]),
    one(shape=[1 << 40, 1], data=[1]), one(shape=[1] * 65, data=[1]), one(), one(data=[1, 2]),
    one(data=[[[1]]]), one(data=[[1], [2, 3]]), one(data=["1"]), one(data=[None]), one(data=[1e39]),
    one(datatype="INT8", data=[128]), one(datatype="UINT8", data=[-1]),
    one(datatype="INT8", data=[1.5]), one(datatype="BOOL", data=[1]),
    {"inputs": one(data=[1])["inputs"] * 2}, {**one(data=[1]), "id": 7},
    {**one(data=[1]), "parameters": []}, {**one(data=[1]), "parameters": {"signature_name": 1}},
    {**one(data=[1]), "parameters": {"binary_data_output": "false"}},
    {**one(data=[1]), "outputs": "y"}, {**one(data=[1]), "outputs": [{}]},
    binary(-1), binary("4"), binary(4, data=[1]), binary(4),
]  # fmt: skip


@pytest.mark.golden("served/rest_v2_refused")
def test_documents_that_are_refused(inference):
    said = []
    for document in REFUSED:
        text = document if isinstance(document, str) else json.dumps(document)
        status, found = post(inference, text.encode())
        assert (status, list(found)) == (400, ["error"])
        said.append(f"{text}\n{found['error']}\n")
    assert_golden(*said)


@pytest.mark.parametrize(
    ("length", "words"),
    [
        ("-1", says("infer-header-length", got="-1")),
        ("many", says("infer-header-length", got="many")),
        ("", says("infer-header-length", got="")),
        ("9" * 30, says("infer-header-length")),
        ("٣", says("infer-header-length")),
        ("1e2", says("infer-header-length", got="1e2")),
        ("-0", says("infer-header-length", got="-0")),
        ("0.0", says("infer-header-length", got="0.0")),
        ("10", says("json-not-parsed")),
        (None, says("infer-binary-size", size=0)),
        ("+1", says("infer-binary-size", expected=4)),
        ("+2", says("infer-binary-size", expected=4)),
        ("=999999", says("infer-header-length", got="999999")),
    ],
)
def test_a_length_of_the_document_that_is_wrong(inference, length, words):
    """`None`: none; `+1`: the document and one byte of space."""
    text, content = document_of("binary", {"x": ("FP32", [[2.0]])}, (), {})
    headers = {}
    if length is not None:
        if length in ("+1", "+2"):
            text, content = text + b"  ", content[: 4 - int(length)]
            length = str(len(text))
        headers = {LENGTH: length.removeprefix("=").encode().decode("latin-1")}
    status, found = post(inference, text + content, **headers)
    assert status == 400
    assert re.search(words, found["error"])


@pytest.mark.parametrize("more", [b"\0", b"\0" * 5])
def test_binary_data_that_is_too_long(inference, more):
    text, content = document_of("binary", {"x": ("FP32", [[2.0]])}, (), {})
    status, found = post(inference, text + content + more, **{LENGTH: str(len(text))})
    assert status == 400
    assert shows(found["error"], "infer-binary-size", size=4 + len(more))


def test_binary_data_of_another_size_than_its_shape(inference):
    document = {"inputs": [{**X, "parameters": {"binary_data_size": 8}}]}
    text = json.dumps(document).encode()
    status, found = post(inference, text + bytes(8), **{LENGTH: str(len(text))})
    assert status == 400
    assert found["error"] == Containing("8 ", "4")


def infer(inference, inputs, outputs=(), parameters=SWAPPED, form="flat", path=ECHO, **headers):
    text, content = document_of(form, inputs, outputs, parameters)
    headers = {**headers, **({LENGTH: str(len(text))} if form == "binary" else {})}
    body = text + content
    if headers.get("Content_Encoding") == "gzip":
        body = gzip.compress(body)
    return http_ask(inference.server, "POST", path, body, **headers)


@pytest.mark.parametrize("form", ["flat", "binary"])
def test_bodies_may_be_packed(inference, form):
    given = {"x": ("FP32", [[1.0, 2.0]])}
    answer = answer_of(*infer(inference, given, form=form, Content_Encoding="gzip"))
    assert answer.outputs["y"][1].tolist() == [[2.0, 1.0]]
    status, found, _ = infer(inference, given, form=form, Content_Encoding="deflate")
    assert status == 400
    assert shows(found["error"], "http-content-encoding", coding="deflate")


@pytest.mark.parametrize(
    ("parameters", "output", "is_binary"),
    [({}, {}, False), ({"binary_data_output": True}, {}, True), ({}, {"binary_data": True}, True),
     ({"binary_data_output": True}, {"binary_data": False}, False)],
)  # fmt: skip
def test_outputs_as_binary_data_or_not(inference, parameters, output, is_binary):
    document = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}],
        "outputs": [{"name": "y", "parameters": output}],
        "parameters": {**SWAPPED, **parameters},
    }
    status, body, headers = http_ask(inference.server, "POST", ECHO, json.dumps(document).encode())
    assert (LENGTH.lower() in headers) == is_binary
    assert headers["access-control-allow-origin"] == "*"
    assert answer_of(status, body, headers).outputs["y"][1].tolist() == [[2.0, 1.0]]


def zeros() -> dict:
    """Return a row for each input of `echo`."""
    return {name.lower(): (name, array_of(name, [[False, True]])) for name in TYPES} | {
        "bytes": ("BYTES", [[b"a", b""]])
    }


def test_inputs_as_binary_data_beside_others(inference):
    """The binary data follows in the order of those inputs that have it."""
    given = zeros()
    document = json.loads(document_of("flat", given, (), {})[0])
    content = b""
    for each in document["inputs"][::2]:
        del each["data"]
        array = array_of(*given[each["name"]])
        each["parameters"] = {"binary_data_size": len(raw_of(array))}
        content += raw_of(array)
    text = json.dumps(document).encode()
    body = http_ask(inference.server, "POST", ECHO, text + content, **{LENGTH: str(len(text))})
    answer = answer_of(*body)
    assert answer.outputs.keys() == {f"{name}_out" for name in given}, answer.message
    for name, (_, array) in answer.outputs.items():
        _, value = given[name.removesuffix("_out")]
        assert array.tolist() == np.asarray(value).tolist()


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity"])
def test_what_json_lacks(inference, number):
    body = (b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [%s]}]}'
            % number)  # fmt: skip
    status, found = post(inference, body)
    assert status == 200
    np.testing.assert_array_equal(found["outputs"][0]["data"], [float(number) / 2 + 3])


def test_texts_that_are_none_are_answered_as_binary_data_alone(inference):
    given = zeros()
    given["bytes"] = "BYTES", [[b"\xff", b""]]
    text, content = document_of("binary", given, ("bytes_out",), {})
    for binary, status in ((True, 200), (False, 400)):
        document = json.loads(text)
        document["outputs"][0]["parameters"] = {"binary_data": binary}
        changed = json.dumps(document).encode()
        length = {LENGTH: str(len(changed))}
        found, body, _ = http_ask(inference.server, "POST", ECHO, changed + content, **length)
        assert found == status
    assert shows(body["error"], "output-not-utf8", name="bytes_out")


@pytest.mark.sampled
@pytest.mark.parametrize(
    "form", pairwise.drawn("large_bodies", ["flat", "nested", "binary"], 1, quick=1)
)
@pytest.mark.parametrize("rows", [100_000, 400_000])
def test_large_bodies(inference, form, rows):
    """Documents from 512 KiB on are read by another process, bodies from 1 MiB lie in a mapping."""
    array = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
    status, body, headers = infer(inference, {"x": ("FP32", array)}, form=form)
    assert status == 200
    answer = answer_of(status, body, headers)
    np.testing.assert_array_equal(answer.outputs["y"][1], array[:, ::-1])


@pytest.mark.sampled
@pytest.mark.parametrize("datatype", ["BYTES", "BF16", "FP16", "BOOL"])
def test_a_large_document_of_each_kind_of_array(inference, datatype):
    """It is handed over between processes; with a wrong one beside it, its refusal as well."""
    small = {name: (each, [*value, *value]) for name, (each, value) in zeros().items()}
    rows = 120_000
    large = np.full((rows, 2), b"abc", object) if datatype == "BYTES" else np.ones((rows, 2))
    small[datatype.lower()] = datatype, large
    output = f"{datatype.lower()}_out"
    status, body, headers = infer(inference, small, (output,), {}, "flat")
    answer = answer_of(status, body, headers)
    assert answer.code == "OK", answer.message
    assert answer.outputs[output][1].shape == (rows, 2)
    assert set(answer.outputs[output][1].reshape(-1).tolist()) == {large[0, 0]}
    small["int8"] = "INT16", np.ones((2, 2))
    status, body, _ = infer(inference, small, (output,), {}, "flat")
    assert status == 400
    assert shows(body["error"], "infer-input-datatype", name="int8", got="INT16", expected="INT8")


def raw_body(inference, content, path=INFER, length="0", **headers):
    """Send data without a document; return the status, and the outputs or the error."""
    found = http_ask(inference.server, "POST", path, content, **{LENGTH: length}, **headers)
    return found[0], answer_of(*found)


@pytest.mark.parametrize("length", ["0", "00"])
@pytest.mark.parametrize("count", [0, 1, 3, 300_000])
def test_a_body_without_a_document_is_the_only_input(inference, count, length):
    values = np.arange(count, dtype=np.float32)
    status, found = raw_body(inference, values.tobytes(), length=length)
    assert (status, found.model) == (200, "half_plus_two")
    np.testing.assert_array_equal(found.outputs["y"][1], values[:, np.newaxis] / 2 + 3)


def test_a_body_without_a_document_may_be_packed(inference):
    body = gzip.compress(np.ones(2, np.float32).tobytes())
    status, found = raw_body(inference, body, Content_Encoding="gzip")
    assert (status, found.outputs["y"][1].tolist()) == (200, [[3.5], [3.5]])


@pytest.mark.parametrize(
    ("content", "path", "status", "code", "fields"),
    [
        (bytes(6), INFER, 400, "infer-raw-body-size", {"name": "x", "size": 6, "row": 4}),
        (bytes(8), ECHO, 400, "infer-raw-body-inputs", {"model": "echo"}),
        (bytes(8), "/v2/models/several/infer", 400, "infer-signature-not-named", {}),
        (bytes(8), "/v2/models/none/infer", 404, "", {}),
    ],
)
def test_bodies_without_a_document_that_are_refused(inference, content, path, status, code, fields):
    found, answer = raw_body(inference, content, path)
    assert found == status
    assert not code or shows(answer.message, code, **fields)


def test_without_the_header_a_body_is_a_document(inference):
    status, found = post(inference, np.ones(2, np.float32).tobytes())
    assert (status, "JSON" in found["error"]) == (400, True)


def test_an_output_as_its_best_classes(inference):
    given = {"x": ("FP32", [[1.0, 2.5], [4.0, -3.0]])}
    for form, count, expected in (
        ("flat", 1, [["2.500000:0"], ["4.000000:1"]]),
        ("binary", 9, [["2.500000:0", "1.000000:1"], ["4.000000:1", "-3.000000:0"]]),
    ):
        text, content = document_of(form, given, ("y",), SWAPPED)
        document = json.loads(text)
        document["outputs"][0]["parameters"] = {"classification": count}
        text = json.dumps(document).encode()
        found = answer_of(*http_ask(inference.server, "POST", ECHO, text + content,
                                    **({LENGTH: str(len(text))} if content else {})))  # fmt: skip
        datatype, array = found.outputs["y"]
        assert datatype == "BYTES"
        assert [[each.decode() for each in row] for row in array.tolist()] == expected


@pytest.mark.parametrize(
    ("level", "parameters", "code"),
    [
        (level, parameters, "infer-parameter-unsupported")
        for level, all_ in {
            "request": [{"sequence_id": 42}, {"sequence_id": "a"}, {"sequence_start": True},
                        {"sequence_end": True}, {"sequence_id": -1}, {"sequence_id": [1]}],
            "inputs": [{"shared_memory_region": "a"}], "outputs": [{"shared_memory_region": "a"}],
        }.items()
        for parameters in all_
    ] + [
        ("outputs", {"classification": value}, "infer-field-type")
        for value in (-1, 1.0, "1", True, 1 << 40)
    ],
)  # fmt: skip
def test_parameters_that_change_the_meaning_are_refused(inference, level, parameters, code):
    document = {**one(data=[1]), "outputs": [{"name": "y"}]}
    (document if level == "request" else document[level][0])["parameters"] = parameters
    status, found = post(inference, document)
    [(name, value)] = parameters.items()
    assert status == 400
    assert re.search(says(code), found["error"])
    text = "a list of 1" if type(value) is list else json.dumps(value)
    assert f"'{name}' is {text}," in found["error"]
    if name == "classification":
        assert shows(found["error"], code, expected=because("classes-expected"))


def test_parameters_that_change_no_meaning_are_ignored(inference):
    document = {
        "inputs": [{**X, "data": [2], "parameters": {"any": 1}}],
        "outputs": [{"name": "y", "parameters": {"classification": 0, "any": None}}],
        "parameters": {"sequence_id": 0, "sequence_start": False, "sequence_end": None,
                       "priority": 1, "timeout": 5, "triton_enable_empty_final_response": True},
    }  # fmt: skip
    for identifier in (0, "", None):
        document["parameters"]["sequence_id"] = identifier
        status, found = post(inference, document)
        assert (status, found.get("outputs", found)[0]["data"]) == (200, [4.0])
