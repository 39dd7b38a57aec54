"""Every row of what TensorFlow Serving answers to a wrong request: its code, and its words."""

import re
from types import SimpleNamespace

import grpc
import numpy as np
import pytest
from google.protobuf import text_format

from deploykit.serving.lifecycle.model_config import ModelSettings
from deploykit.serving.protocol.protos import (
    ClassificationRequest,
    Example,
    GetModelMetadataRequest,
    MultiInferenceRequest,
    PredictRequest,
    RegressionRequest,
    ReloadConfigRequest,
)
from deploykit.serving.protocol.signatures import REGRESS
from deploykit.serving.server.server import Server, ServerSettings
from tests.serving.official_stubs import ModelServiceStub, PredictionServiceStub
from tests.serving.small_models import half_plus
from tests.support import assert_golden, says


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    base = tmp_path_factory.mktemp("models")
    models = [
        ModelSettings(name, half_plus(base / name, add))
        for name, add in (("half_plus_two", 2), ("half_plus_three", 3))
    ]
    server = Server(ServerSettings(models, port=0))
    server.start()
    channel = grpc.insecure_channel(f"127.0.0.1:{server.port}")
    yield SimpleNamespace(
        predictions=PredictionServiceStub(channel),
        models=ModelServiceStub(channel),
        settings=models,
        server=server,
    )
    channel.close()
    server.drain(1)


def status(call, request):
    with pytest.raises(grpc.RpcError) as error:
        call(request, timeout=10)
    return error.value.code().name, error.value.details()


def spec(request, name="half_plus_two", signature="", version=None, label=""):
    request.model_spec.name = name
    request.model_spec.signature_name = signature
    if version is not None:
        request.model_spec.version.value = version
    if label:
        request.model_spec.version_label = label
    return request


def predict(x=2.0, outputs=(), **target):
    request = spec(PredictRequest(output_filter=outputs), **target)
    request.inputs["x"].dtype = 1
    request.inputs["x"].tensor_shape.dim.add(size=1)
    request.inputs["x"].tensor_shape.dim.add(size=1)
    request.inputs["x"].float_val.append(x)
    return request


def example(x=2.0):
    made = Example()
    made.features.feature["x"].float_list.value.append(x)
    return made


def ask(kind, signature, x=2.0, **target):
    request = spec(kind(), signature=signature, **target)
    request.input.example_list.examples.append(example(x))
    return request


def tasks(*wanted):
    request = MultiInferenceRequest()
    request.input.example_list.examples.append(example())
    for name, signature, method in wanted:
        task = request.tasks.add(method_name=method)
        task.model_spec.name = name
        task.model_spec.signature_name = signature
    return request


@pytest.mark.sampled
def test_a_call_needs_no_deadline(served):
    assert served.predictions.Predict(predict()).outputs["y"].float_val[0] == 3.0


def test_a_context_is_common_to_all_examples(served):
    request = spec(RegressionRequest(), signature="regress_x_to_y")
    request.input.example_list_with_context.context.CopyFrom(example(4.0))
    request.input.example_list_with_context.examples.add()
    request.input.example_list_with_context.examples.add()
    answer = served.predictions.Regress(request, timeout=10)
    assert [each.value for each in answer.result.regressions] == [4.0, 4.0]


def with_two_inputs():
    request = predict()
    request.inputs["z"].CopyFrom(request.inputs["x"])
    return request


def with_another_alias():
    request = predict()
    request.inputs["z"].CopyFrom(request.inputs["x"])
    del request.inputs["x"]
    return request


def undecodable():
    request = predict()
    request.inputs["x"].tensor_content = b"123"
    return request


def of_dtype(number):
    request = predict()
    request.inputs["x"].Clear()
    request.inputs["x"].dtype = number
    request.inputs["x"].tensor_shape.dim.add(size=1)
    request.inputs["x"].tensor_shape.dim.add(size=1)
    request.inputs["x"].int_val.append(1)
    return request


def of_shape(*sizes):
    request = predict()
    del request.inputs["x"].tensor_shape.dim[:]
    for size in sizes:
        request.inputs["x"].tensor_shape.dim.add(size=size)
    return request


def asking_for_gigabytes():
    request = of_shape(1 << 30, 1)
    assert len(request.SerializeToString()) < 60
    return request


def examples(method, kind, signature):
    """Return requests of a method for examples, which are refused."""
    broken = ask(kind, signature)
    broken.input.example_list.examples[0].features.feature["x"].int64_list.value.append(1)
    requests = (ask(kind, "S"), ask(kind, "", name="m"), ask(kind, "serving_default"), broken)
    return [(method, each) for each in (spec(kind(), signature=signature), *requests)]


TWO, THREE = "half_plus_two", "half_plus_three"
REFUSED = [
    *(("Predict", each) for each in (
        PredictRequest(), spec(PredictRequest(), ""), predict(label="L"), with_two_inputs(),
        with_another_alias(), undecodable(), of_dtype(0), of_shape(-1), of_shape(1 << 40, 1 << 40),
        asking_for_gigabytes(), predict(outputs=["q"]), predict(outputs=["y", "y"]),
    )),
    *examples("Classify", ClassificationRequest, "classify_x_to_y"),
    *examples("Regress", RegressionRequest, "regress_x_to_y"),
    *(("MultiInference", tasks(*each)) for each in (
        [(TWO, "", REGRESS), (THREE, "S", REGRESS)], [(TWO, "S", REGRESS)] * 2,
        [("", "S", REGRESS)], [(TWO, "S", REGRESS)],
    )),
    ("GetModelMetadata", spec(GetModelMetadataRequest())),
    ("GetModelMetadata", spec(GetModelMetadataRequest(metadata_field=["F"]))),
]  # fmt: skip


@pytest.mark.golden("served/grpc_refused")
def test_what_is_refused(served):
    """Beside what test_served_goldens.py asks."""
    said = []
    for method, request in REFUSED:
        code, details = status(getattr(served.predictions, method), request)
        shown = text_format.MessageToString(request, as_utf8=True)
        words = "(TensorFlow's words)" if "[[{{node" in details else details
        said.append(f"{method}\n{shown}{code}\n{words}\n")
    assert_golden(*said)


def config(served, *names, platform="tensorflow"):
    request = ReloadConfigRequest()
    paths = {each.name: str(each.base_path) for each in served.settings}
    for name in names:
        listed = request.config.model_config_list.config.add(name=name, model_platform=platform)
        listed.base_path = paths[name]
    return request


def test_reload_refuses(served):
    call = served.models.HandleReloadConfigRequest
    custom = ReloadConfigRequest()
    custom.config.custom_model_config.type_url = "x"
    both = ("half_plus_two", "half_plus_three")
    for request, words in (
        (
            custom,
            says("reload-config-type"),
        ),
        (
            config(served, *both, "half_plus_two"),
            says("config-model-twice", name="half_plus_two"),
        ),
        (config(served, *both, platform="other"), says("config-platform-changed", new="other")),
        (
            config(served, *both, platform=""),
            says("config-no-platform"),
        ),
    ):
        found, details = status(call, request)
        assert found == "INVALID_ARGUMENT"
        assert re.match(words, details)
    assert served.predictions.Predict(predict(), timeout=10).model_spec.version.value == 123


def test_a_reload_takes_models_away_and_brings_them_back(served):
    call = served.models.HandleReloadConfigRequest
    assert call(config(served, "half_plus_two"), timeout=10).status.error_code == 0
    assert status(served.predictions.Predict, predict(name="half_plus_three"))[0] == "NOT_FOUND"
    call(config(served, "half_plus_two", "half_plus_three"), timeout=10)
    answer = served.predictions.Predict(predict(name="half_plus_three"), timeout=10)
    assert np.allclose(answer.outputs["y"].float_val, [4.0])
