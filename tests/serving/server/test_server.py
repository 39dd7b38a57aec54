"""A server with models: loads and warm-up, limits, deadlines, health of each model."""

import json
import re
import shutil
from types import SimpleNamespace

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from deploykit.serving.lifecycle.model_config import ModelSettings
from deploykit.serving.protocol.codec import encode
from deploykit.serving.protocol.protos import (
    Batching,
    GetModelStatusRequest,
    PredictionLog,
    PredictRequest,
)
from deploykit.serving.saved_model.warmup_requests import FILE, write_requests
from deploykit.serving.server.config_files import Monitoring
from deploykit.serving.server.server import Server
from deploykit.serving.server.settings import ServerSettings
from tests.serving.official_stubs import ModelServiceStub, PredictionServiceStub
from tests.serving.slow_model import LONG, slow
from tests.serving.small_models import half_plus
from tests.support import says
from tests.waiting import until

IN_FLIGHT = 3


def ask(model: str, x) -> PredictRequest:
    request = PredictRequest()
    request.model_spec.name = model
    request.inputs["x"].CopyFrom(encode(x))
    return request


def half(model="half_plus_two"):
    return ask(model, np.full((1, 1), 2, np.float32))


def count(steps: int) -> PredictRequest:
    return ask("slow", np.array(steps, np.int32))


def warmed(base, name: str, log: PredictionLog):
    """Return the settings of a copy of a model that has a warm-up request."""
    folder = base / name
    shutil.copytree(base / "half_plus_two", folder)
    file = folder / "00000123" / FILE
    file.parent.mkdir()
    file.write_bytes(b"".join(write_requests([log])))
    return ModelSettings(name, folder)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    base = tmp_path_factory.mktemp("models")
    (base / "broken" / "1").mkdir(parents=True)
    (base / "broken" / "1" / "saved_model.pb").write_bytes(b"no model")
    models = [
        ModelSettings("broken", base / "broken"),
        ModelSettings("half_plus_two", half_plus(base / "half_plus_two", 2)),
        ModelSettings("slow", slow(base / "slow")),
        warmed(base, "warm", PredictionLog(predict_log={"request": half()})),
        warmed(base, "wrong", PredictionLog(predict_log={"request": ask("m", np.zeros(3))})),
        warmed(base, "session", PredictionLog(session_run_log={"request": {}})),
    ]
    settings = ServerSettings(
        models, port=0, slots=1, max_in_flight=IN_FLIGHT, access_log=str(base / "access.log"),
        num_request_iterations_for_warmup=2, rest_api_port=0,
        monitoring=Monitoring(enable=True, path="/metrics"),
    )  # fmt: skip
    server = Server(settings)
    server.start()
    channel = grpc.insecure_channel(f"127.0.0.1:{server.port}")
    yield SimpleNamespace(
        server=server,
        base=base,
        channel=channel,
        predict=PredictionServiceStub(channel).Predict,
        status=ModelServiceStub(channel).GetModelStatus,
        health=health_pb2_grpc.HealthStub(channel),
    )
    channel.close()
    server.drain(1)


def state(served, model):
    request = GetModelStatusRequest()
    request.model_spec.name = model
    [found] = served.status(request, timeout=10).model_version_status
    name = found.State.Name(found.state)
    return name, grpc_code(found.status.error_code), found.status.error_message


def grpc_code(number: int) -> str:
    return next(code.name for code in grpc.StatusCode if code.value[0] == number)


def test_a_broken_model_does_not_stop_the_others(served):
    assert state(served, "half_plus_two") == ("AVAILABLE", "OK", "")
    found, code, message = state(served, "broken")
    assert (found, code) == ("LOADING", "FAILED_PRECONDITION")  # it is tried again
    assert "saved_model.pb" in message


def test_warm_up_requests_are_replayed_before_a_version_answers(served):
    assert state(served, "warm") == ("AVAILABLE", "OK", "")
    page = served.server.metrics.page().decode()
    path = served.base / "warm" / "00000123"
    assert f'model_warmup_latency_count{{model_path="{path}",status="OK"}} 1' in page


def test_times_that_calls_waited_for_their_batch_are_on_the_page(served):
    models = [ModelSettings("half_plus_two", served.base / "half_plus_two")]
    server = Server(ServerSettings(models, port=0, slots=1, batching=Batching()))
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        for _ in range(2):
            PredictionServiceStub(channel).Predict(half(), timeout=10)
    page = server.metrics.page().decode()
    assert 'queuing_latency_count{thread_pool_name="batch_threads"} 2' in page
    assert server.drain(5)


def test_a_version_whose_warm_up_fails_does_not_serve(served):
    found, code, message = state(served, "wrong")
    assert (found, code) == ("LOADING", "INVALID_ARGUMENT")
    assert f"{FILE}: record 0: " in message
    found, code, message = state(served, "session")
    assert (found, code) == ("LOADING", "UNIMPLEMENTED")
    assert re.search(f"{says('warmup-type-unsupported', kind='session_run_log')}$", message)


def test_each_model_has_a_health(served):
    def health(name):
        request = health_pb2.HealthCheckRequest(service=name)
        return served.health.Check(request, timeout=10).status

    serving = health_pb2.HealthCheckResponse.SERVING
    assert health("half_plus_two") == serving
    assert health("") == serving
    assert health("broken") == health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.mark.sampled
@pytest.mark.parametrize("quick", [0, 3])
def test_a_call_that_is_over_leaves_its_slot(served, quick):
    """There is one slot: whoever kept it would let the next one wait for minutes.

    Quick calls that went round the same loop say nothing of the next.
    """
    again(served)
    for _ in range(quick):
        served.predict(count(1), timeout=10)
    ended = over(served)
    with pytest.raises(grpc.RpcError) as error:
        served.predict(count(LONG), timeout=0.5)
    assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    until(lambda: over(served) > ended)
    again(served)


def over(served) -> int:
    """Return how many calls of the slow model have ended at their deadline in the server."""
    counts = served.server.metrics.requests._values
    return counts.get(("slow", "DEADLINE_EXCEEDED"), 0)


def again(served):
    """Call until there is an answer; what computes for others must end at their deadline."""
    while (call := served.predict.future(half(), timeout=10)).code() is not grpc.StatusCode.OK:
        assert call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def logged(served):
    """Return what stands in the access log by now; a thread writes it."""
    lines = (served.base / "access.log").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]
