"""What TensorFlow Serving's own tests ask of its server, asked of a whole process of ours.

Written anew along tensorflow_model_server_test.py. What is not served here, and so not asked:
TensorFlow Lite models, the profiler's service and the ops of tf_text.
"""

import signal
from pathlib import Path
from types import SimpleNamespace

import grpc
import numpy as np
import pytest

from deploykit.serving.protocol.codec import encode
from deploykit.serving.protocol.protos import (
    ClassificationRequest,
    MultiInferenceRequest,
    PredictRequest,
    RegressionRequest,
)
from deploykit.serving.protocol.signatures import CLASSIFY, REGRESS
from tests.serving import acceptance_models
from tests.serving.official_stubs import PredictionServiceStub
from tests.serving.served import Served, free_port
from tests.serving.server.test_status_codes import ask, spec, tasks
from tests.support import Containing, shows
from tests.waiting import until

METRICS = "/monitoring/prometheus/metrics"
CHANNEL_ARGUMENTS = "grpc.max_connection_age_ms=2000,grpc.lb_policy_name=grpclb"
BOTH_FORMATS = pytest.mark.parametrize("model", ["half_plus_two", "tf2"])


def write_config(path: Path, base: Path, **names: str) -> None:
    """Write the list of models to serve: folder by name."""
    lines = [
        f'config {{ name: "{name}" base_path: "{base / folder}" model_platform: "tensorflow" }}'
        for name, folder in names.items()
    ]
    hidden = path.with_suffix(".new")
    hidden.write_text(f"model_config_list {{ {' '.join(lines)} }}")
    hidden.rename(path)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    base = tmp_path_factory.mktemp("models")
    names = acceptance_models.write(base)
    config = base / "models.config"
    write_config(config, base, **{name: name for name in names})
    monitoring = base / "monitoring.config"
    monitoring.write_text(f'prometheus_config {{ enable: true path: "{METRICS}" }}')
    rest, unix = free_port(), base / "socket"
    server = Served(
        f"--model_config_file={config}", f"--rest_api_port={rest}", f"--grpc_socket_path={unix}",
        f"--monitoring_config_file={monitoring}", "--model_config_file_poll_wait_seconds=0",
        f"--grpc_channel_arguments={CHANNEL_ARGUMENTS}",
    )  # fmt: skip
    yield SimpleNamespace(server=server, base=base, config=config, rest=rest, unix=unix)
    server.kill()


def predict(model="half_plus_two", shape=(1, 1), signature="", outputs=()):
    request = spec(PredictRequest(output_filter=outputs), name=model, signature=signature)
    request.inputs["x"].CopyFrom(encode(np.full(shape, 2, np.float32)))
    return request


def y(served, *arguments, alias="y", **more) -> list[float]:
    """Return what is answered, read from the field that clients read."""
    answer = served.server.predictions.Predict(predict(*arguments, **more), timeout=20)
    assert answer.model_spec.version.value == 123
    assert answer.model_spec.signature_name == more.get("signature", "serving_default")
    assert answer.outputs[alias].dtype == 1
    return list(answer.outputs[alias].float_val)


@pytest.mark.sampled
@BOTH_FORMATS
def test_classify_and_regress(served, model):
    request = ask(ClassificationRequest, "classify_x_to_y", name=model)
    answer = served.server.predictions.Classify(request, timeout=20)
    assert [[each.score for each in one.classes] for one in answer.result.classifications] == [[3]]
    assert answer.model_spec.signature_name == "classify_x_to_y"
    request = ask(RegressionRequest, "regress_x_to_y", name=model)
    answer = served.server.predictions.Regress(request, timeout=20)
    assert [each.value for each in answer.result.regressions] == [3]
    assert answer.model_spec.version.value == 123


@pytest.mark.sampled
@BOTH_FORMATS
def test_multi_inference(served, model):
    request = tasks((model, "regress_x_to_y", REGRESS), (model, "classify_x_to_y", CLASSIFY))
    assert isinstance(request, MultiInferenceRequest)
    first, second = served.server.predictions.MultiInference(request, timeout=20).results
    assert first.regression_result.regressions[0].value == 3
    assert second.classification_result.classifications[0].classes[0].score == 3
    assert {each.model_spec.version.value for each in (first, second)} == {123}


def test_shapes_beside_the_signature(served):
    """The real server compares none; here it takes ops that no shape can bring down."""
    for model in ("half_plus_two", "tf2"):
        assert y(served, model, (1,)) == [3]
        assert y(served, model, (3,)) == [3, 3, 3]
    for model, shape in (("keras", (3,)), ("images", ()), ("images", (4, 4, 1))):
        with pytest.raises(grpc.RpcError) as error:
            served.server.predictions.Predict(predict(model, shape), timeout=20)
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert error.value.details() == Containing("'x'", f"{list(shape)}")


def test_a_model_that_cannot_compute(served):
    with pytest.raises(grpc.RpcError) as error:
        served.server.predictions.Predict(predict("uninitialised"), timeout=20)
    assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_tf_saved_model_save(served):
    assert y(served, "one_function", (1,)) == [12]
    assert y(served, "several_signatures", (1,)) == [1]
    assert y(served, "several_signatures", (1,), signature="custom") == [2]
    assert y(served, "distributed", (2,)) == [3, 3]


def test_keras_sequential(served):
    assert y(served, "keras", (3, 1), alias="output_0") == [2, 2, 2]


def test_a_unix_socket(served):
    with grpc.insecure_channel(f"unix:{served.unix}") as channel:
        answer = PredictionServiceStub(channel).Predict(predict(), timeout=20)
    assert list(answer.outputs["y"].float_val) == [3]


@pytest.mark.slow
def test_a_changed_list_is_read_again_where_it_is_polled_alone(served):
    """A server that polls each second tells that the list was there to be read all along."""
    base, config = served.base, served.config
    polling = Served(f"--model_config_file={config}", "--model_config_file_poll_wait_seconds=1")

    def code(server, model) -> str:
        call = server.predictions.Predict.future(predict(model), timeout=20)
        return call.code().name

    try:
        assert code(polling, "half_plus_two") == "OK"
        write_config(config, base, renamed="half_plus_three")
        until(lambda: code(polling, "renamed") == "OK")
        until(lambda: code(polling, "half_plus_two") == "NOT_FOUND")
        answer = polling.predictions.Predict(predict("renamed"), timeout=20)
        assert list(answer.outputs["y"].float_val) == [4]
        write_config(config, base, renamed="half_plus_three", again="half_plus_two")
        until(lambda: code(polling, "again") == "OK")
        assert code(served.server, "renamed") == "NOT_FOUND"
        assert code(served.server, "half_plus_two") == "OK"
        status, said = polling.end(signal.SIGTERM)
        assert status == 0, said
    finally:
        polling.kill()


@pytest.mark.sampled
def test_a_list_that_cannot_be_read(tmp_path):
    config = tmp_path / "models.config"
    config.write_text("improperly formatted file")
    server = Served(f"--model_config_file={config}", ready=False)
    status, said = server.ended()
    assert status != 0
    assert shows(said, "config-not-parsed", package="tensorflow.serving", name="ModelServerConfig")
