"""The REST API over a real port and model: what TensorFlow Serving's own tests ask, and more."""

import gzip
import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploykit.serving.execution.data_plane import Plane
from deploykit.serving.execution.engines.engine import Loading
from deploykit.serving.execution.engines.open_version import open_version
from deploykit.serving.lifecycle.model_config import ModelSettings
from deploykit.serving.lifecycle.models import Models
from deploykit.serving.lifecycle.version_folders import All
from deploykit.serving.rest.http_requests import HttpLimits, Request
from deploykit.serving.rest.metrics import Metrics
from deploykit.serving.rest.rest import Rest, RestSettings
from deploykit.serving.server.config_files import METRICS_PATH
from tests.serving import rest_models
from tests.support import assert_golden, shows

CALLS = 4
FOREVER = 1 << 40  # rounds of a loop


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Iterator[Models]:
    folder = tmp_path_factory.mktemp("models")
    base = rest_models.write(folder / "default")
    rest_models.write(base, version=122, add=3.0)
    found = Models(
        lambda n, v, path: open_version(path, n, v, Loading(slots=2)),
        poll_seconds=0,
        early_labels=True,
    )
    found.configure(
        [
            ModelSettings("default", base, All(), {"stable": 122}),
            ModelSettings("half/plus two", base),
        ]
    )
    yield found
    found.close(1)


class Client:
    """A connection to a server."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, method, path, body=None, **headers):
        """Return the response with its body read, decoded where it is JSON."""
        if isinstance(body, dict):
            body = json.dumps(body)
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        response.body = response.read()
        if response.getheader("Content-Type") == "application/json" and response.body:
            response.body = json.loads(response.body)
        return response

    def post(self, path, body, **headers):
        return self.ask("POST", f"/v1/models/{path}", body, **headers)

    def get(self, path):
        return self.ask("GET", path)

    def close(self):
        self._connection.close()


@contextmanager
def serving(models, in_flight=CALLS, slots=2, metrics=None, plane=None, **options):
    metrics = metrics or Metrics()
    plane = plane or Plane(models, in_flight, slots, metrics.observe)
    rest = Rest(plane, models, RestSettings(**options), metrics)
    rest.start()
    try:
        yield rest
    finally:
        rest.close()


@pytest.fixture(scope="module")
def server(models):
    with serving(models, metrics_path=METRICS_PATH) as rest:
        yield rest


@pytest.fixture
def client(server):
    found = Client(server.port)
    yield found
    found.close()


def counted(client) -> dict[str, float]:
    """Return how many requests ended how, of the model `default`."""
    text = client.get(METRICS_PATH).body.decode()
    return {
        sample.labels["status"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "request_count" in sample.name and sample.labels["model_name"] == "default"
    }


def test_status_of_several_versions(client):
    everything = client.get("/v1/models/default").body["model_version_status"]
    assert sorted(each["version"] for each in everything) == ["122", "123"]
    labelled = client.get("/v1/models/default/labels/stable").body["model_version_status"]
    assert [each["version"] for each in labelled] == ["122"]


def test_prometheus(client):
    client.post("default:predict", {"instances": [1.0]})
    response = client.get(METRICS_PATH)
    assert response.status == 200
    assert response.getheader("Content-Type").startswith("text/plain")
    assert b"# TYPE :tensorflow:serving:request_count counter" in response.body
    assert b'model_name="default",API="predict",entrypoint="REST"' in response.body


def test_the_names_of_all_models(client):
    assert client.get("/v1/models").body == {"models": ["default", "half/plus two"]}


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("default/versions/122:predict", 3.5),
        ("default/versions/0123:predict", 2.5),
        ("default/labels/stable:predict", 3.5),
        ("DEFAULT:predict", None),  # names of models are as they are
        ("default/VERSIONS/122:PREDICT", 3.5),
        ("half%2Fplus%20two:predict", 2.5),
    ],
)
def test_who_is_asked(client, path, answer):
    response = client.post(path, {"inputs": 1})
    assert response.body.get("outputs") == answer
    assert client.ask("POST", f"/V1/Models/{path}", '{"inputs": 1}').body == response.body
    absolute = client.ask("POST", f"http://proxy:80/v1/models/{path}", '{"inputs": 1}')
    assert absolute.body == response.body


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "uint8", "int64", "uint64"])
def test_numbers_of_each_type(client, dtype):
    response = client.post("default:predict", {"signature_name": dtype, "inputs": [[1, 2]]})
    assert response.body == {"outputs": [[1, 2]]}


def test_classes_with_names(client):
    body = {
        "signature_name": "classify_names",
        "context": {"name": "é"},
        "examples": [{"x": 2.0}, {"x": 2.0, "more": 1, "name": {"b64": "YQ=="}}],
    }
    response = client.post("default:classify", body)
    assert response.body == {"results": [[["é", 0.3]], [["a", 0.4]]]}


FOO, DEFAULT = "/v1/models/foo", "/v1/models/default"
REFUSED = [
    ("GET", "/statuspage"), ("GET", "/v1/foo"), ("POST", "/v1/foo"), ("POST", "/v1/models"),
    ("GET", "/v1/models/debug/model_name"), ("GET", f"{DEFAULT}?a=1"),
    ("POST", f"{DEFAULT}/version/50:predict"), ("POST", f"{DEFAULT}/versions/HELLO:regress"),
    ("POST", f"{DEFAULT}/versions/1/labels/a:regress"), ("POST", f"{DEFAULT}/metadata"),
    ("GET", "/v1/models/metadata/metadata/metadata"), ("GET", "/v1/models/versions/1"),
    ("PUT", f"{DEFAULT}:predict"), ("DELETE", DEFAULT),
    ("POST", f"{FOO}/versions/{(1 << 64) - 1}:regress"),
    ("POST", f"{FOO}/versions/{'9' * 5000}:regress"), ("GET", f"{DEFAULT}/labels/no"),
    ("POST", f"{DEFAULT}/labels/no:predict", '{"inputs": 1}'),
    ("POST", f"{DEFAULT}:predict", "\xff\xfe{"),
    ("POST", f"{DEFAULT}:predict", '{"signature_name": 1}'),
    ("POST", f"{DEFAULT}:predict", '{"inputs": [1, NaN], "signature_name": "\\ud800"}'),
    ("POST", f"{DEFAULT}:predict", '{"inputs": {}}'),
    ("POST", f"{DEFAULT}:predict", '{"inputs": [[1]], "signature_name": "slow"}'),
    ("POST", f"{DEFAULT}:classify", '{"examples": []}'),
    ("POST", f"{DEFAULT}:regress", '{"examples": [{}], "signature_name": "no"}'),
    ("POST", f"{DEFAULT}:regress", '{"examples": [{}], "signature_name": "regress_x_to_y"}'),
    ("POST", f"{DEFAULT}:regress", '{"examples": [{"x": 1}], "signature_name": "regress_x_to_y"}'),
]  # fmt: skip


@pytest.mark.golden("served/rest_refused")
def test_what_is_refused(client):
    """Beside what test_served_goldens.py and test_as_tensorflow_serving.py ask."""
    said = []
    for method, path, *body in REFUSED:
        response = client.ask(method, path, *(each.encode("latin-1") for each in body))
        assert list(response.body) == ["error"]
        assert len(response.body["error"]) <= 1024
        shown = " ".join((method, path[:100], *map(ascii, body)))
        error = response.body["error"]
        words = "(TensorFlow's words)" if "[[{{node" in error else error
        said.append(f"{shown}\n{response.status}\n{words}\n")
    assert_golden(*said)


def test_a_body_that_is_packed(client):
    packed = gzip.compress(b'{"inputs": [2.0]}')
    for coding in ("gzip", "GZIP"):
        response = client.post("default:predict", packed, **{"Content-Encoding": coding})
        assert response.body == {"outputs": [3.0]}
    for body in (packed[:-9], b"{}", packed[:12]):
        response = client.post("default:predict", body, **{"Content-Encoding": "gzip"})
        assert response.status == 400
        assert shows(response.body["error"], "http-body-not-gzip")
    response = client.post("default:predict", b"{}", **{"Content-Encoding": "br"})
    assert response.status == 400
    assert shows(response.body["error"], "http-content-encoding", coding="br")


def test_a_body_that_comes_in_chunks_or_not_at_all(client):
    pieces = iter([b'{"inp', b'uts": [2.0]}'])
    assert client.post("default:predict", pieces).body == {"outputs": [3.0]}
    response = client.post("default:predict", None)
    assert shows(response.body["error"], "json-empty")


def test_a_body_beyond_the_limit(models):
    with serving(models, limits=HttpLimits(body=1000)) as rest:
        client = Client(rest.port)
        response = client.post("default:predict", {"inputs": [1.0] * 1000})
        assert response.status == 413
        assert shows(response.body["error"], "http-body-too-large", most=1000)
        client = Client(rest.port)
        packed = gzip.compress(b" " * 1001)
        response = client.post("default:predict", packed, **{"Content-Encoding": "gzip"})
        assert response.status == 413
        assert shows(response.body["error"], "http-body-too-large", most=1000)
        response = client.post("default:predict", {"inputs": [1.0]})
        assert response.status == 200
        client.close()


def test_other_pages_of_browsers(models):
    origin = {"Origin": "https://example.org"}
    for cors in (True, False):
        with serving(models, cors=cors) as rest:
            client = Client(rest.port)
            for response, status in (
                (client.ask("OPTIONS", "/v1/models/default:predict", **origin), 200),
                (client.post("default:predict", {"inputs": 1}), 200),
                (client.post("default:predict", {}), 400),
                (client.ask("OPTIONS", "/v1/models/default:predict"), 400),
            ):
                assert response.status == status
                allowed = response.getheader("Access-Control-Allow-Origin")
                assert allowed == ("*" if cors else None)
            client.close()


def test_there_is_no_page_of_metrics_unless_it_is_asked_for(models):
    with serving(models) as rest:
        assert Client(rest.port).get(METRICS_PATH).status == 404


def in_thread(call):
    """Start a call, and return a thread that keeps its result."""

    def run():
        thread.result = call()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def slow(port, rounds=FOREVER):
    body = {"signature_name": "slow", "inputs": rounds}
    return in_thread(lambda: Client(port).post("default:predict", body))


def until_in_plane(rest, calls):
    """Wait until so many calls were let in."""
    end = time.monotonic() + 30
    while rest._plane._admission._value > rest._plane.in_flight - calls:
        assert time.monotonic() < end, "the calls are not let in, or are answered already"
        time.sleep(0.005)


def test_a_call_that_takes_too_long(models):
    with serving(models, timeout_in_ms=200) as rest:
        thread = slow(rest.port)
        thread.join()
        assert thread.result.status == 504
        assert Client(rest.port).post("default:predict", {"inputs": 1}).status == 200


def refused_at_headers(port, size):
    """Return what a call hears of whose body no byte is sent."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest("POST", "/v1/models/default:predict")
    connection.putheader("Content-Length", str(size))
    connection.endheaders()
    response = connection.getresponse()
    assert (response.status, response.getheader("Retry-After")) == (429, "1")
    return json.loads(response.read())


@pytest.mark.slow
def test_more_calls_than_are_let_in(models):
    with serving(models, in_flight=1, timeout_in_ms=3000) as rest:
        thread = slow(rest.port)
        client = Client(rest.port)
        until_in_plane(rest, 1)
        refused = client.post("default:predict", {"inputs": 1})
        assert refused.status == 429
        assert shows(refused.body["error"], "too-many-calls", in_flight=1)
        assert refused_at_headers(rest.port, 2 << 20) == refused.body
        assert client.get("/v1/models/default").status == 200
        thread.join()
        assert thread.result.status == 504
        assert client.post("default:predict", {"inputs": 1}).status == 200


@pytest.mark.sampled
def test_who_hangs_up_while_waiting_is_not_computed(models):
    """The one slot is taken; the call behind it is dropped once its caller has gone."""
    metrics = Metrics()
    plane = Plane(models, CALLS, 1, metrics.observe)
    page = {"metrics": metrics, "metrics_path": METRICS_PATH}
    with (
        serving(models, plane=plane, timeout_in_ms=1000) as first,
        serving(models, plane=plane, timeout_in_ms=0, **page) as second,
    ):
        thread = slow(first.port)
        until_in_plane(first, 1)
        gone = http.client.HTTPConnection("127.0.0.1", second.port)
        body = b'{"signature_name": "slow", "inputs": 1}'  # a quick one would not wait
        gone.request("POST", "/v1/models/default:predict", body)
        until_in_plane(second, 2)
        gone.close()
        thread.join()
        client = Client(second.port)
        while sum((counts := counted(client)).values()) < 2:
            time.sleep(0.005)
        assert counts == {"CANCELLED": 1, "DEADLINE_EXCEEDED": 1}
        client.close()


@pytest.mark.sampled
def test_a_server_that_ends_refuses_new_calls_and_answers_those_in_flight(models):
    with serving(models, slots=1, timeout_in_ms=1000) as rest:
        thread = slow(rest.port)
        until_in_plane(rest, 1)
        rest.listener.closing = True
        assert Client(rest.port).get("/v1/models").status == 503
        thread.join()
        assert thread.result.status == 504
        rest.close()
        with pytest.raises(ConnectionRefusedError):
            Client(rest.port).get("/v1/models")


def test_what_goes_wrong_is_told_without_a_traceback(models, caplog):
    rest = Rest(Plane(models, 1, 1), models)

    def fail(*_):
        raise KeyError("boom")

    rest._plane.predict = fail
    request = Request("POST", "/v1/models/default:predict", {}, b'{"inputs": 1}')
    response = rest.answer(request)
    assert response.status == 500
    assert json.loads(response.body) == {"error": "KeyError: 'boom'"}
    assert shows(caplog.text, "call-failed-unexpectedly", kind="KeyError", reason="'boom'")


def test_each_call_is_counted_once(models):
    with serving(models, metrics_path=METRICS_PATH) as rest:
        client = Client(rest.port)
        for body in ({"inputs": 1}, {"inputs": "a"}, "{", {"inputs": {}}):
            client.post("default:predict", body)
        client.post("default/versions/7:predict", {"inputs": 1})
        client.post("default:classify", {"examples": []})
        assert counted(client) == {"OK": 1, "INVALID_ARGUMENT": 4, "NOT_FOUND": 1}
        client.close()


@pytest.mark.sampled
def test_many_callers_at_once(models):
    with serving(models, in_flight=64) as rest:

        def call(number):
            client = Client(rest.port)
            found = [
                client.post("default:predict", {"inputs": [number, each]}).body["outputs"]
                for each in range(20)
            ]
            client.close()
            return found

        threads = [in_thread(lambda n=n: call(n)) for n in range(16)]
        for number, thread in enumerate(threads):
            thread.join()
            assert thread.result == [[number / 2 + 2, each / 2 + 2] for each in range(20)]
