"""ModelInfer passes what Predict passes: limits, deadlines, batches, the end, log and metrics."""

import http.client
import json
import ssl
import threading
from collections import Counter
from contextlib import closing
from types import SimpleNamespace

import grpc
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploykit.serving.lifecycle.model_config import ModelSettings
from deploykit.serving.protocol.protos import Batching
from deploykit.serving.server.config_files import Monitoring
from deploykit.serving.server.server import Server
from deploykit.serving.server.settings import ServerSettings
from tests.serving.infer_callers import LENGTH, SERVICE, Caller, ask, http_ask, message
from tests.serving.infer_messages import infer, with_tensor
from tests.serving.official_stubs import PredictionServiceStub
from tests.serving.server.test_server import half as predict_half
from tests.serving.slow_model import LONG, slow
from tests.serving.small_models import half_plus
from tests.support import shows
from tests.waiting import until

IN_FLIGHT, SOON = 3, 500  # calls, milliseconds
HALF = {"x": ("FP32", [[2.0]])}
INFER = "/v2/models/half_plus_two/infer"


def started(base, **options):
    """Return a server in this process, as the callers of the protocol know one."""
    models = [ModelSettings("half_plus_two", half_plus(base / "half_plus_two", 2)),
              ModelSettings("slow", slow(base / "slow"))]  # fmt: skip
    log = base / "access.log"
    server = Server(ServerSettings(
        models, port=0, rest_api_port=0, access_log=str(log),
        monitoring=Monitoring(enable=True, path="/metrics"), **options,
    ))  # fmt: skip
    server.start()
    channel = grpc.insecure_channel(f"127.0.0.1:{server.port}")
    document = {"rest_api_port": server.rest.port}
    return SimpleNamespace(server=server, channel=channel, document=document, log=log)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    base = tmp_path_factory.mktemp("models")
    found = started(base, slots=1, max_in_flight=IN_FLIGHT, rest_api_timeout_in_ms=SOON)
    yield found
    found.channel.close()
    found.server.drain(1)


def counting(steps: int):
    request = infer(model="slow")
    with_tensor(request, "x", "INT32", np.array(steps, np.int32), raw=True)
    return request.SerializeToString()


def infer_slow(served, steps: int, seconds: float):
    return served.channel.unary_unary(SERVICE + "ModelInfer").future(counting(steps), seconds)


def post_slow(served, steps: int, **headers: str):
    tensor = {"name": "x", "datatype": "INT32", "shape": [], "data": [steps]}
    body = json.dumps({"inputs": [tensor]}).encode()
    return http_ask(served, "POST", "/v2/models/slow/infer", body, **headers)


def ended(served, code: str) -> int:
    """Return how many calls of the slow model have ended so in the server."""
    return served.server.metrics.requests._values.get(("slow", code), 0)


def is_free(served) -> bool:
    return Caller(served, "raw").infer("half_plus_two", HALF).code == "OK"


@pytest.mark.sampled
def test_a_deadline_frees_the_slot(served):
    """There is one: whoever kept it would let the next one wait for minutes."""
    until(lambda: is_free(served))
    before = ended(served, "DEADLINE_EXCEEDED")
    assert infer_slow(served, LONG, 0.5).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    until(lambda: ended(served, "DEADLINE_EXCEEDED") == before + 1)
    until(lambda: is_free(served))
    status, found, _ = post_slow(served, LONG)
    assert (status, list(found)) == (504, ["error"])
    until(lambda: is_free(served))


@pytest.mark.slow
def test_who_goes_away_while_others_compute_is_not_computed(served):
    until(lambda: is_free(served))
    before = ended(served, "CANCELLED")
    slots = served.server.plane._slots  # a call that has no slot yet may not have been read yet
    first = infer_slow(served, LONG, 6)  # the second must be cancelled before this one ends
    until(lambda: slots._taken == 1)
    call = infer_slow(served, LONG, 600)
    until(lambda: slots._taken == 2)
    call.cancel()
    assert first.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    until(lambda: ended(served, "CANCELLED") == before + 1)
    until(lambda: is_free(served))


@pytest.mark.slow
def test_calls_beyond_the_limit_are_refused_and_probes_are_not(served):
    until(lambda: is_free(served))
    calls = [infer_slow(served, LONG, 10) for _ in range(IN_FLIGHT + 1)]
    until(lambda: any(each.done() for each in calls))
    [refused] = [each for each in calls if each.done()]
    calls.remove(refused)
    assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert shows(refused.details(), "too-many-calls", in_flight=3)
    assert ask(served, "ServerLive").live
    assert ask(served, "ServerReady").ready
    assert ask(served, "ModelReady", name="slow").ready
    for probe in ("live", "ready"):
        assert http_ask(served, "GET", f"/v2/health/{probe}")[0] == 200
    assert not any(each.done() for each in calls)
    assert {each.code() for each in calls} == {grpc.StatusCode.DEADLINE_EXCEEDED}
    until(lambda: is_free(served))


def test_a_limit_of_http(served):
    """Plane and REST count separately, as for Predict: here all places are taken over HTTP."""
    until(lambda: is_free(served))
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(post_slow(served, LONG)[0]))
        for _ in range(IN_FLIGHT + 3)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert set(found) == {429, 504}


def logged(served) -> list[tuple[str, str, str, str]]:
    lines = [json.loads(line) for line in served.log.read_text().splitlines()]
    return [(each["protocol"], each["method"], each["model"], each["code"]) for each in lines]


def test_calls_are_logged(served):
    until(lambda: is_free(served))
    model = "/v2/models/half_plus_two"
    before = len(logged(served))
    for path in ("/v2", "/v2/health/live", "/v2/health/ready", model, f"{model}/ready"):
        http_ask(served, "GET", path)
    assert Caller(served, "flat").infer("half_plus_two", HALF).code == "OK"
    assert http_ask(served, "POST", INFER, b"{")[0] == 400
    for method in ("ServerMetadata", "ServerLive", "ServerReady"):
        ask(served, method)
    ask(served, "ModelMetadata", name="half_plus_two")
    ask(served, "ModelReady", name="nobody")
    assert Caller(served, "raw").infer("half_plus_two", {}).code == "INVALID_ARGUMENT"
    PredictionServiceStub(served.channel).Predict(predict_half(), timeout=30)
    expected = [
        *(("rest-v2", method, "", "OK") for method in ("ServerMetadata", "ServerLive",
                                                      "ServerReady")),
        *(("rest-v2", method, "half_plus_two", "OK") for method in ("ModelMetadata", "ModelReady",
                                                                   "ModelInfer")),
        ("rest-v2", "ModelInfer", "half_plus_two", "INVALID_ARGUMENT"),
        *(("grpc-v2", method, "", "OK") for method in ("ServerMetadata", "ServerLive",
                                                      "ServerReady")),
        ("grpc-v2", "ModelMetadata", "half_plus_two", "OK"),
        ("grpc-v2", "ModelReady", "nobody", "OK"),
        ("grpc-v2", "ModelInfer", "half_plus_two", "INVALID_ARGUMENT"),
        ("grpc", "Predict", "half_plus_two", "OK"),
    ]  # fmt: skip
    # Lines of calls before these may come late.
    until(lambda: Counter(expected) <= Counter(logged(served)[before:]))


def counted(served) -> dict[tuple[str, ...], float]:
    """Return the requests by model and status, and the latencies by model, API and protocol."""
    text = http_ask(served, "GET", "/metrics")[1].decode()
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "request_count" in sample.name or sample.name.endswith("request_latency_count")
    }


def test_calls_are_counted(served):
    until(lambda: is_free(served))
    before = counted(served)
    for form in ("raw", "typed", "flat", "binary"):
        assert Caller(served, form).infer("half_plus_two", HALF).code == "OK"
    assert Caller(served, "binary").infer("half_plus_two", {}).code == 400
    assert http_ask(served, "POST", INFER, b"{")[0] == 400
    document = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1],
                            "parameters": {"binary_data_size": 4}}]}  # fmt: skip
    text = json.dumps(document).encode()
    assert http_ask(served, "POST", INFER, text, **{LENGTH: str(len(text))})[0] == 400
    more = {key: value - before.get(key, 0) for key, value in counted(served).items()}
    model = "half_plus_two"
    assert {key: value for key, value in more.items() if value and key[0] == model} == {
        (model, "OK"): 4,
        (model, "INVALID_ARGUMENT"): 3,
        (model, "ModelInfer", "GRPC"): 2,
        (model, "modelinfer", "REST"): 2,
    }


@pytest.mark.sampled
def test_calls_of_both_protocols_share_a_batch(tmp_path):
    """A batch of three rows waits for ten minutes: alone, none would be answered in time."""
    batching = Batching(3, batch_timeout_micros=600_000_000, num_batch_threads=1)
    served = started(tmp_path, batching=batching)
    try:
        predict = PredictionServiceStub(served.channel).Predict.future(predict_half(), timeout=60)
        found = []
        thread = threading.Thread(
            target=lambda: found.append(Caller(served, "flat").infer("half_plus_two", HALF))
        )
        thread.start()
        answer = Caller(served, "raw").infer("half_plus_two", HALF)
        thread.join()
        for each in (answer, *found):
            assert each.code == "OK", each.message
            assert each.outputs["y"][1].tolist() == [[3.0]]
        assert list(predict.result().outputs["y"].float_val) == [3.0]
    finally:
        served.channel.close()
        served.server.drain(1)


@pytest.mark.sampled
def test_calls_in_flight_are_answered_at_the_end_and_probes_say_so(tmp_path):
    served = started(tmp_path)
    call = infer_slow(served, 20_000, 60)
    until(lambda: served.server.calls.in_flight)
    ending = threading.Thread(target=served.server.drain, args=(60, 0.5))
    ending.start()
    until(lambda: not ask(served, "ServerReady").ready)
    assert ask(served, "ServerLive").live
    assert http_ask(served, "GET", "/v2/health/live")[:2] == (200, {"live": True})
    assert http_ask(served, "GET", "/v2/health/ready")[:2] == (503, {"ready": False})
    found = message("ModelInferResponse").FromString(call.result())
    assert np.frombuffer(found.raw_output_contents[0], np.int32).tolist() == [20_000]
    ending.join()
    served.channel.close()


def test_both_protocols_over_tls(authority):
    server = Server(ServerSettings([], port=0, rest_api_port=0, tls=authority.tls()))
    server.start()
    try:
        trusted = grpc.ssl_channel_credentials(authority.certificate.encode())
        address = f"127.0.0.1:{server.port}"
        with grpc.secure_channel(address, trusted) as channel:
            assert ask(SimpleNamespace(channel=channel), "ServerReady").ready
        with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError):
            ask(SimpleNamespace(channel=channel), "ServerReady")
        context = ssl.create_default_context(cadata=authority.certificate)
        port = server.rest.port
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60)
        with closing(connection):
            connection.request("GET", "/v2/health/ready")
            assert connection.getresponse().status == 200
    finally:
        server.drain(1)
