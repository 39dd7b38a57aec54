"""What TensorFlow Serving answers to unusual requests, by its source at 9d981c5, and we as well.

Sources: util/json_tensor.cc (with RapidJSON 1.1.0 and its flags kParseNanAndInfFlag and
kParseStopWhenDoneFlag), model_servers/http_rest_api_handler.cc, model_servers/server_core.cc.
"""

import http.client
import json
import socket
from contextlib import closing
from dataclasses import dataclass

import grpc
import pytest

from deploykit.serving.protocol.protos import GetModelStatusRequest, PredictRequest
from tests.serving import rest_models
from tests.serving.served import Served, free_port

INFINITE = float("inf")


@dataclass(frozen=True)
class Row:
    """A request over REST."""

    about: str
    body: str | bytes
    status: int
    """Of TensorFlow Serving."""
    answer: object
    """Its answer, or words of its error."""
    method: str = "predict"
    here: str = ""
    """Words of our error where we refuse (400) what TensorFlow Serving answers."""


NAMED = '"signature_name": '
TABLE = [
    # FindMember: the first member of a name counts ...
    Row("two inputs", '{"inputs": [2.0], "inputs": [4.0]}', 200, [3.0]),
    Row("two instances", '{"instances": [2.0], "instances": [4.0, 6.0]}', 200, [3.0]),
    Row("two columns", '{"inputs": {"x": [2.0], "x": [4.0]}}', 200, [3.0]),
    Row("two values in a row", '{"instances": [{"x": 2.0, "x": 4.0}]}', 200, [3.0]),
    Row("three columns", '{"inputs": {"x": [2.0], "x": [4.0], "x": "a"}}', 200, [3.0]),
    Row("a key written in two ways", '{"inputs": [2.0], "\\u0069nputs": [4.0]}', 200, [3.0]),
    Row("beside a string with colons", '{"a": ":::", "inputs": [2], "inputs": [4]}', 200, [3.0]),
    Row("two signatures", f'{{{NAMED}"int64", {NAMED}"no", "inputs": [1]}}', 200, [1]),
    Row("the wrong signature first", f'{{{NAMED}"no", {NAMED}"int64", "inputs": [1]}}', 400,
        'Serving signature name: "no" not found in signature def'),
    Row("a wrong value first", '{"inputs": ["a"], "inputs": [2.0]}', 400, "not of expected type"),
    Row("rows and columns", '{"inputs": [1], "instances": [1], "inputs": [1]}', 400, "only"),
    Row("two bytes in base64", '{"signature_name": "pairs", "inputs": {"number": [1], '
        '"word": [{"b64": "YQ==", "b64": "Yg=="}]}}', 400, "JSON Value: "),
    # ... but not the features of an Example, which one after the other are set.
    Row("two features", f'{{{NAMED}"regress_x_to_y", "examples": [{{"x": 2.0, "x": 4.0}}]}}', 200,
        [4.0], "regress"),
    Row("two features of the context", f'{{{NAMED}"regress_x_to_y", "context": {{"x": 8.0, '
        '"x": 6.0}, "examples": [{}]}', 200, [5.0], "regress"),
    Row("two examples", f'{{{NAMED}"regress_x_to_y", "examples": [{{"x": 2.0}}], '
        '"examples": [{"x": 4.0}]}', 200, [3.0], "regress"),
    # Columns are looked up by the names of the inputs; of rows, each key is looked at.
    Row("another column", '{"inputs": {"x": [2.0], "id": [7, "a"]}}', 200, [3.0]),
    Row("another ragged column", '{"inputs": {"z": [[1], [2, 3]], "x": [2.0]}}', 200, [3.0]),
    Row("a column less", '{"inputs": {"id": [2.0]}}', 400, "issing"),
    Row("another key beside", '{"id": 7, "inputs": [2.0], "parameters": {"a": [1]}}', 200, [3.0]),
    Row("another key in a row", '{"instances": [{"x": 2.0, "id": 7}]}', 400, "named input"),
    Row("another key in the second row", '{"instances": [{"x": 2.0}, {"x": 2.0, "id": 7}]}', 400,
        "Failed to process element: 1 key: "),
    Row("a key less in a row", '{"signature_name": "pairs", "instances": [{"number": 1, '
        '"word": "a"}, {"number": 1}]}', 400, "keys must be equal to: number,word"),
    # Literals, in each place where a number may stand.
    Row("NaN and infinities", '{"inputs": [Inf, -Inf, Infinity, -Infinity]}', 200,
        [INFINITE, -INFINITE, INFINITE, -INFINITE]),
    Row("NaN with a sign", f'{{{NAMED}"divide", "inputs": [Inf, -Inf, 2, -NaN]}}', 200, "NaN"),
    Row("infinity in a row", '{"instances": [{"x": -Inf}]}', 200, [-INFINITE]),
    Row("infinity beside a string", f'{{"a": "Inf -NaN", {NAMED}"word", "inputs": "-NaN Inf"}}',
        400, 'Serving signature name: "word"'),
    Row("a string of that name", f'{{{NAMED}"both", "inputs": {{"number": [1], "word": ["Inf"]}},'
        ' "x": -Inf}', 200, "Inf!"),
    Row("infinity of an example", f'{{{NAMED}"regress_x_to_y", "examples": [{{"x": Inf}}]}}', 200,
        [INFINITE], "regress"),
    Row("infinity for an integer", f'{{{NAMED}"int64", "inputs": [Inf]}}', 400, "expected type"),
    Row("inf", '{"inputs": [inf]}', 400, "JSON Parse error"),
    Row("nan", '{"inputs": [nan]}', 400, "JSON Parse error"),
    Row("+Inf", '{"inputs": [+Inf]}', 400, "JSON Parse error"),
    Row("Infinit", '{"inputs": [Infinit]}', 400, "JSON Parse error"),
    Row("too large for float64", '{"inputs": [1e400]}', 400, "JSON Parse error"),
    # The parser stops behind the document.
    Row("text behind", '{"inputs": [2.0]} and more', 200, [3.0]),
    Row("a document behind", '{"inputs": [2.0]}{"inputs": [4.0]}', 200, [3.0]),
    Row("a brace behind", '{"inputs": [2.0]}}', 200, [3.0]),
    Row("bytes behind", b'{"inputs": [2.0]}\n\0\xff\xfe"', 200, [3.0]),
    Row("a mark before, text behind", b'\xef\xbb\xbf \n{"inputs": [2.0]}]', 200, [3.0]),
    Row("text before", 'x {"inputs": [2.0]}', 400, "JSON Parse error"),
    Row("no end", '{"inputs": [2.0]', 400, "JSON Parse error"),
    Row("a list before", '[1] {"inputs": [2.0]}', 400, "Is not object"),
    Row("nothing", "", 400, "The document is empty"),
    Row("a comma too many", '{"inputs": [2.0,]}', 400, "JSON Parse error"),
    Row("a comment", '{"inputs": [2.0] /* x */}', 400, "JSON Parse error"),
    Row("half a surrogate", '{"a": "\\ud800", "inputs": [2.0]}', 400, "JSON Parse error"),
    # Rows: each is read alone, and compared with the first.
    Row("rows of two sizes", '{"instances": [[1, 2], [3]]}', 400,
        "Failed to process element: 1 of 'instances' list. Error: "),
    Row("rows of two sizes, at the end", '{"instances": [[1], [2], [3], [4, 5]]}', 400,
        "Expecting tensor size: 1 but got: 2"),
    Row("rows of two shapes", '{"instances": [[[1, 2]], [[3], [4]]]}', 400,
        "Expecting shape [1,2] but got: [2,1]"),
    Row("a row and a number", '{"instances": [[1], 2]}', 400, "Expecting shape [1] but got: []"),
    Row("an empty row", '{"instances": [[], [1]]}', 400, "Expecting tensor size: 0 but got: 1"),
    Row("a ragged row", '{"instances": [[[1, 2], [3]]]}', 400,
        "Failed to process element: 0 of 'instances' list. Error: "),
    Row("a ragged row, named", '{"instances": [{"x": [1]}, {"x": [[1, 2], [3]]}]}', 400,
        "Encountered list at unexpected size: 1 at level: 1 expected size: 2"),
    Row("a row of strings", '{"instances": [[1], ["a"]]}', 400, "Failed to process element: 1"),
    Row("a row of a type that JSON lacks", f'{{{NAMED}"complex64", "instances": [1]}}', 400,
        "Failed to process element: 0"),
    Row("a column of a type that JSON lacks", f'{{{NAMED}"complex64", "inputs": [1]}}', 501,
        "Conversion of JSON Value"),
    Row("a ragged column", '{"inputs": [[1, 2], [3]]}', 400,
        "Encountered list at unexpected size: 1 at level: 1 expected size: 2"),
    Row("columns of two lengths", f'{{{NAMED}"pairs", "inputs": {{"number": [1, 2], '
        '"word": ["a"]}}', 200, {"twice": [2, 4], "word_bytes": [{"b64": "YQ=="}]}),
    Row("no rows", '{"instances": []}', 400, "No values in 'instances' array"),
    # What we refuse, as TensorFlow Serving answers something else than was sent.
    Row("beyond float32", '{"inputs": [1e39]}', 200, [INFINITE], here="out of the range"),
    Row("beyond uint8", f'{{{NAMED}"uint8", "inputs": [300]}}', 200, [44], here="out of the range"),
    # Its flags lack kParseValidateEncodingFlag: bytes of strings pass through. Clients send others
    # than UTF-8 as {"b64": ...}.
    Row("not UTF-8", b'{"a": "\xff", "inputs": [2.0]}', 200, [3.0], here="not valid UTF-8"),
    Row("a text not in UTF-8", b'{"signature_name": "pairs", "inputs": {"number": [1], '
        b'"word": ["\xff"]}}', 200, {"twice": [2], "word_bytes": [{"b64": "/w=="}]},
        here="not valid UTF-8"),
]  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    base = tmp_path_factory.mktemp("models")
    rest_models.write(base / "default")
    rest_models.write(base / "default", version=122, add=3.0)
    rest_models.write(base / "zero", version=0, add=5.0)
    rest_models.write(base / "zero")
    config = "".join(
        f'config {{ name: "{name}" base_path: "{base / name}" model_platform: "tensorflow" '
        "model_version_policy { all {} } }\n"
        for name in ("default", "zero")
    )
    (base / "models.config").write_text(f"model_config_list {{ {config} }}")
    started = Served(
        f"--model_config_file={base / 'models.config'}", f"--rest_api_port={free_port()}"
    )
    yield started
    started.kill()


def post(server, path, body):
    """Return the status and the document of an answer."""
    with closing(
        http.client.HTTPConnection("127.0.0.1", server.document["rest_api_port"], timeout=60)
    ) as connection:
        connection.request("POST", f"/v1/models/{path}", body)
        response = connection.getresponse()
        return response.status, json.loads(response.read())


@pytest.mark.sampled
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.about)
def test_requests_over_rest(server, row):
    status, found = post(server, f"default:{row.method}", row.body)
    (content,) = found.values()
    if row.here:
        assert (status, row.here in content) == (400, True), content
        return
    assert status == row.status, content
    if type(row.answer) is str:
        assert row.answer in str(content if status >= 400 else json.dumps(content))
    else:
        assert content == row.answer


def raw(server, text):
    """Send a request, and return the status of the answer."""
    port = server.document["rest_api_port"]
    with closing(socket.create_connection(("127.0.0.1", port), timeout=60)) as client:
        client.sendall(text)
        return int(client.recv(65536).split()[1])


PATH = b"GET /v1/models/default HTTP/"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("text", "status"),
    [
        (PATH + b"1.1\r\nHost: h\r\n\r\n", 200),
        (PATH + b"1.1\r\nhOST: [::1]:8501\r\n\r\n", 200),
        (PATH + b"1.1\r\nHost:\r\n\r\n", 200),  # of a target without authority
        (PATH + b"1.0\r\n\r\n", 200),
        (PATH + b"1.1\r\n\r\n", 400),
        (PATH + b"1.1\r\nX-Host: h\r\n\r\n", 400),
        (PATH + b"1.1\r\nHost: h\r\nHost: h\r\n\r\n", 400),
        (PATH + b"1.1\r\nHost: h\r\nX: y\r\nHOST: i\r\n\r\n", 400),
        (PATH + b"1.0\r\nHost: h\r\nHost: h\r\n\r\n", 400),
        (PATH + b"1.1\r\nHost: a b\r\n\r\n", 400),
        (PATH + b"1.1\r\nHost: h/path\r\n\r\n", 400),
        (PATH.replace(b" /", b" http://h/") + b"1.1\r\n\r\n", 400),
        (b"POST /v1/models/default:predict HTTP/1.1\r\nContent-Length: 9\r\n\r\n", 400),
    ],
)
def test_a_request_has_one_host(server, text, status):
    """RFC 9112, section 3.2; libevent, on which TensorFlow Serving is built, asks for none."""
    assert raw(server, text) == status


def predict(server, model, version):
    request = PredictRequest()
    request.model_spec.name = model
    request.model_spec.version.value = version
    request.inputs["x"].dtype = 1
    request.inputs["x"].float_val.append(2.0)
    return server.predictions.Predict(request, timeout=60)


def test_version_0_is_the_latest_unless_there_is_a_version_0(server):
    """Protobuf's clients send 0 for no version; TensorFlow Serving looks for a version 0."""
    answer = predict(server, "default", 0)
    assert (answer.model_spec.version.value, list(answer.outputs["y"].float_val)) == (123, [3.0])
    answer = predict(server, "zero", 0)
    assert (answer.model_spec.version.value, list(answer.outputs["y"].float_val)) == (0, [6.0])
    assert post(server, "default/versions/0:predict", '{"inputs": 2}') == (200, {"outputs": 3.0})
    assert post(server, "zero/versions/0:predict", '{"inputs": 2}') == (200, {"outputs": 6.0})
    with pytest.raises(grpc.RpcError, match=r"Specific\(default, 7\)"):
        predict(server, "default", 7)
    with pytest.raises(grpc.RpcError, match=r"Latest\(none\)"):
        predict(server, "none", 0)


def test_the_status_of_version_0_is_that_of_all(server):
    request = GetModelStatusRequest()
    request.model_spec.name = "default"
    request.model_spec.version.value = 0
    found = server.models.GetModelStatus(request, timeout=60).model_version_status
    assert sorted(each.version for each in found) == [122, 123]
    request.model_spec.name = "zero"
    found = server.models.GetModelStatus(request, timeout=60).model_version_status
    assert [each.version for each in found] == [0]
