"""Every row of what TensorFlow Serving answers to a wrong request: its code, and its words."""

import re
from types import SimpleNamespace

import grpc
import numpy as np
import pytest

from deploykit.serving.lifecycle.model_config import ModelSettings
from deploykit.serving.protocol.protos import (
    ClassificationRequest,
    Example,
    GetModelMetadataRequest,
    GetModelStatusRequest,
    MultiInferenceRequest,
    PredictRequest,
    RegressionRequest,
    ReloadConfigRequest,
    SignatureDefMap,
)
from deploykit.serving.protocol.signatures import CLASSIFY, REGRESS
from deploykit.serving.server.server import Server, ServerSettings
from tests.serving.official_stubs import ModelServiceStub, PredictionServiceStub
from tests.serving.small_models import half_plus
from tests.support import says, shows


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


def test_predict_answers_in_typed_fields_with_and_without_a_filter(served):
    for outputs in ((), ("y",)):
        answer = served.predictions.Predict(predict(outputs=outputs), timeout=10)
        assert list(answer.outputs["y"].float_val) == [3.0]
        assert answer.model_spec.name == "half_plus_two"
        assert answer.model_spec.version.value == 123
        assert answer.model_spec.signature_name == "serving_default"


def test_a_shape_that_the_graph_takes_is_answered_whatever_the_signature_says(served):
    """The signature says [?, 1]; so do TensorFlow Serving's own tests, which send a row."""
    request = of_shape(3)
    request.inputs["x"].float_val[:] = [1.0, 2.0, 5.0]
    answer = served.predictions.Predict(request, timeout=10)
    assert list(answer.outputs["y"].float_val) == [2.5, 3.0, 4.5]


def test_a_call_needs_no_deadline(served):
    assert served.predictions.Predict(predict()).outputs["y"].float_val[0] == 3.0


def test_classify_and_regress(served):
    answer = served.predictions.Classify(ask(ClassificationRequest, "classify_x_to_y"), timeout=10)
    (one,) = answer.result.classifications
    assert [(each.label, each.score) for each in one.classes] == [("", 3.0)]
    answer = served.predictions.Regress(ask(RegressionRequest, "regress_x_to_y"), timeout=10)
    assert [each.value for each in answer.result.regressions] == [3.0]
    assert answer.model_spec.version.value == 123


def test_a_context_is_common_to_all_examples(served):
    request = spec(RegressionRequest(), signature="regress_x_to_y")
    request.input.example_list_with_context.context.CopyFrom(example(4.0))
    request.input.example_list_with_context.examples.add()
    request.input.example_list_with_context.examples.add()
    answer = served.predictions.Regress(request, timeout=10)
    assert [each.value for each in answer.result.regressions] == [4.0, 4.0]


def test_multi_inference_asks_both_in_one_call(served):
    request = tasks(
        ("half_plus_two", "regress_x_to_y", REGRESS), ("half_plus_two", "classify_x_to_y", CLASSIFY)
    )
    answer = served.predictions.MultiInference(request, timeout=10)
    first, second = answer.results
    assert first.regression_result.regressions[0].value == 3.0
    assert second.classification_result.classifications[0].classes[0].score == 3.0
    assert first.model_spec.signature_name == "regress_x_to_y"


def test_metadata_tells_the_signatures(served):
    request = spec(GetModelMetadataRequest(metadata_field=["signature_def"]))
    answer = served.predictions.GetModelMetadata(request, timeout=10)
    found = SignatureDefMap()
    assert list(answer.metadata) == ["signature_def"]
    assert answer.metadata["signature_def"].Unpack(found)
    assert answer.model_spec.version.value == 123
    assert set(found.signature_def) == {"serving_default", "classify_x_to_y", "regress_x_to_y"}
    assert found.signature_def["serving_default"].inputs["x"].dtype == 1


def test_status_has_one_version(served):
    answer = served.models.GetModelStatus(spec(GetModelStatusRequest()), timeout=10)
    (version,) = answer.model_version_status
    assert (version.version, version.state) == (123, 30)
    assert (version.status.error_code, version.status.error_message) == (0, "")


def without_inputs():
    return spec(PredictRequest())


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


PREDICT = [
    (PredictRequest(), "INVALID_ARGUMENT", says("model-spec-missing")),
    (spec(PredictRequest(), ""), "INVALID_ARGUMENT", says("model-spec-without-name")),
    (predict(name="m"), "NOT_FOUND", says("servable-missing", what="Latest(m)")),
    (
        predict(version=7),
        "NOT_FOUND",
        says(
            "servable-missing",
            what="Specific(half_plus_two, 7)",
            served="versions of half_plus_two served here: 123",
        ),
    ),
    (predict(label="L"), "INVALID_ARGUMENT", says("version-label-unknown", label="L")),
    (predict(signature="S"), "FAILED_PRECONDITION", says("signature-key-missing", name="S")),
    (
        without_inputs(),
        "INVALID_ARGUMENT",
        says(
            "signature-inputs-differ",
            count=0,
            expected_count=1,
            names="{}",
            expected="{x}",
            extra="{}",
            missing="{x}",
        ),
    ),
    (
        with_two_inputs(),
        "INVALID_ARGUMENT",
        says(
            "signature-inputs-differ",
            count=2,
            expected_count=1,
            names="{x,z}",
            expected="{x}",
            extra="{z}",
            missing="{}",
        ),
    ),
    (
        with_another_alias(),
        "INVALID_ARGUMENT",
        says("signature-input-missing", alias="x", name="x:0"),
    ),
    (undecodable(), "INVALID_ARGUMENT", says("tensor-not-parsed", name="x")),
    (of_dtype(0), "INVALID_ARGUMENT", says("tensor-not-parsed", name="x")),
    (of_shape(-1), "INVALID_ARGUMENT", says("tensor-not-parsed", name="x")),
    (of_shape(1 << 40, 1 << 40), "INVALID_ARGUMENT", says("tensor-not-parsed", name="x")),
    (asking_for_gigabytes(), "INVALID_ARGUMENT", says("tensor-not-parsed", name="x")),
    (
        predict(outputs=["q"]),
        "INVALID_ARGUMENT",
        says("signature-output-missing", alias="q", known="{y}"),
    ),
    (predict(outputs=["y", "y"]), "INVALID_ARGUMENT", says("signature-output-twice", alias="y")),
    (
        of_dtype(3),
        "INVALID_ARGUMENT",
        says("signature-argument", number=0, wanted="float", given="int32"),
    ),
]


@pytest.mark.parametrize(("request_", "code", "words"), PREDICT)
def test_predict_refuses(served, request_, code, words):
    found, details = status(served.predictions.Predict, request_)
    assert found == code
    assert re.search(words, details)


MISSING = "No signature was found with the name: S"


@pytest.mark.parametrize(
    ("method", "kind", "signature"),
    [
        ("Classify", ClassificationRequest, "classify_x_to_y"),
        ("Regress", RegressionRequest, "regress_x_to_y"),
    ],
)
def test_classify_and_regress_refuse(served, method, kind, signature):
    call = getattr(served.predictions, method)
    empty = spec(kind(), signature=signature)
    assert status(call, empty) == ("INVALID_ARGUMENT", "Input is empty.")
    assert status(call, ask(kind, "S")) == ("INVALID_ARGUMENT", MISSING)
    found, details = status(call, ask(kind, "", name="m"))
    missing = "Servable not found for request: Latest(m); models served here: "
    assert (found, details[: len(missing)]) == ("NOT_FOUND", missing)
    assert "half_plus_two" in details
    found, details = status(call, ask(kind, "serving_default"))
    assert found == "INVALID_ARGUMENT"
    assert shows(details, "signature-not-for-method", inputs="{x}", gives="{y}")
    broken = ask(kind, signature)
    broken.input.example_list.examples[0].features.feature["x"].int64_list.value.append(1)
    found, details = status(call, broken)
    assert found == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (
            [("half_plus_two", "", REGRESS), ("half_plus_three", "S", REGRESS)],
            "All ModelSpecs in a MultiInferenceRequest must access the same model name.",
        ),
        (
            [("half_plus_two", "S", REGRESS), ("half_plus_two", "S", REGRESS)],
            "Duplicate evaluation of signature: S",
        ),
        ([("", "S", REGRESS)], "Found ModelSpec with an empty model name."),
        (
            [("half_plus_two", "S", REGRESS)],
            "Requested signature not found in model graph: S",
        ),
    ],
)
def test_multi_inference_refuses(served, wanted, words):
    found, details = status(served.predictions.MultiInference, tasks(*wanted))
    assert (found, details[: len(words)]) == ("INVALID_ARGUMENT", words)


def test_metadata_refuses(served):
    call = served.predictions.GetModelMetadata
    assert status(call, spec(GetModelMetadataRequest())) == (
        "INVALID_ARGUMENT",
        "GetModelMetadataRequest must specify at least one metadata_field",
    )
    assert status(call, spec(GetModelMetadataRequest(metadata_field=["F"]))) == (
        "INVALID_ARGUMENT",
        "Metadata field F is not supported",
    )


def test_status_refuses(served):
    call = served.models.GetModelStatus
    found, details = status(call, spec(GetModelStatusRequest(), "M"))
    assert found == "NOT_FOUND"
    assert shows(
        details,
        "model-version-missing",
        model="M",
        served="models served here: half_plus_three, half_plus_two",
        what="any versions",
    )
    assert "half_plus_two" in details
    assert status(call, spec(GetModelStatusRequest(), version=7)) == (
        "NOT_FOUND",
        "Could not find version 7 of model half_plus_two; versions of half_plus_two served here: "
        "123",
    )


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
            "ServerModelConfig type not supported by HandleReloadConfigRequest. "
            "Only ModelConfigList is currently supported",
        ),
        (
            config(served, *both, "half_plus_two"),
            "Illegal to list model half_plus_two multiple times in config list",
        ),
        (config(served, *both, platform="other"), "Illegal to change a model's platform"),
        (
            config(served, *both, platform=""),
            "Illegal setting neither ModelServerConfig::model_type (deprecated) nor",
        ),
    ):
        found, details = status(call, request)
        assert (found, details[: len(words)]) == ("INVALID_ARGUMENT", words)
    assert served.predictions.Predict(predict(), timeout=10).model_spec.version.value == 123


def test_a_reload_takes_models_away_and_brings_them_back(served):
    call = served.models.HandleReloadConfigRequest
    assert call(config(served, "half_plus_two"), timeout=10).status.error_code == 0
    assert status(served.predictions.Predict, predict(name="half_plus_three"))[0] == "NOT_FOUND"
    call(config(served, "half_plus_two", "half_plus_three"), timeout=10)
    answer = served.predictions.Predict(predict(name="half_plus_three"), timeout=10)
    assert np.allclose(answer.outputs["y"].float_val, [4.0])
