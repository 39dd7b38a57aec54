"""A model is computed in the precision that is asked for, or it is said that it is not."""

import numpy as np
import pytest

from deploykit.benchmarking.devices import config
from deploykit.benchmarking.engines.tensorflow_runner import TensorFlowRunner
from deploykit.benchmarking.measurement import Job
from deploykit.benchmarking.run_config import RunConfig, check_computed, float32_of, in_words
from deploykit.benchmarking.run_config_grid import RunConfigGrid
from deploykit.transforms.common.errors import GraphError
from tests.support import Containing, build, raises, random, says, tf


def rewriter(**settings):
    return config(RunConfig(**settings)).graph_options.rewrite_options


def test_each_precision_is_asked_for_in_its_own_way(restored_tf32):
    on = 1
    assert rewriter(precision="bf16").auto_mixed_precision_onednn_bfloat16 == on
    assert rewriter(precision="fp16", device="gpu").auto_mixed_precision == on
    plain = [rewriter(), rewriter(device="gpu"), rewriter(precision="fp32", device="gpu")]
    for each in plain:
        assert not each.auto_mixed_precision
        assert not each.auto_mixed_precision_onednn_bfloat16
    assert not tf.config.experimental.tensor_float_32_execution_enabled()
    rewriter(precision="tf32", device="gpu")
    assert tf.config.experimental.tensor_float_32_execution_enabled()


@pytest.fixture
def restored_tf32():
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    yield
    tf.config.experimental.enable_tensor_float_32_execution(before)


@pytest.mark.parametrize(
    ("precision", "device", "variable"),
    [("fp32", "gpu", "0"), ("fp32", "all", "0"), ("tf32", "gpu:1", None)],
)
def test_what_nvidias_libraries_are_told(precision, device, variable):
    found = RunConfig(precision=precision, device=device).environment
    assert found["NVIDIA_TF32_OVERRIDE"] == variable
    for other in (
        RunConfig(precision="fp32"),
        RunConfig(device="gpu"),
        RunConfig(precision="bf16"),
    ):
        assert "NVIDIA_TF32_OVERRIDE" not in other.environment


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"precision": "tf32"}, says("precision-gpu-only", precision="tf32")),
        ({"precision": "fp16"}, says("precision-gpu-only")),
        ({"precision": "bf16", "device": "gpu"}, says("precision-bf16-cpu-only")),
        ({"precision": "tf32", "engine": "openvino"}, "tf32"),
    ],
)
def test_what_no_device_has_is_refused(settings, says):
    with pytest.raises(GraphError, match=says):
        RunConfig(**settings).check_here()


@pytest.mark.parametrize(
    ("capabilities", "variable", "allowed", "is_named"),
    [
        ([(8, 0)], None, True, "tf32"),
        ([(9, 0), (8, 6)], "1", True, "tf32"),
        ([(7, 5)], None, True, "fp32"),
        ([(9, 0), (7, 5)], None, True, "fp32"),
        ([None], None, True, "fp32"),
        ([(9, 0)], "0", True, "fp32"),
        ([(9, 0)], None, False, "fp32"),
        ([], None, True, "fp32"),
    ],
)
def test_float32_has_the_name_of_what_multiplies_it(
    monkeypatch, restored_tf32, capabilities, variable, allowed, is_named
):
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    if variable is not None:
        monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", variable)
    tf.config.experimental.enable_tensor_float_32_execution(allowed)
    assert float32_of(capabilities) == is_named


def test_layers_that_are_not_in_it_are_refused():
    check_computed("fp16", {"float32": 1, "float16": 5}, "tf32")
    check_computed(None, {}, "tf32")
    check_computed("fp32", {}, "fp32")
    with pytest.raises(
        GraphError, match=says("precision-without-effect", precision="bf16", has="54 in float32")
    ):
        check_computed("bf16", {"float32": 54}, "fp32")
    with pytest.raises(GraphError, match=says("precision-without-effect", has="it has none")):
        check_computed("fp16", {}, "fp32")
    with raises(GraphError, "precision-tf32-missing"):
        check_computed("tf32", {}, "fp32")


def test_in_what_it_is_computed_in_words():
    assert in_words(None, "tf32", {}) == "tf32"
    assert in_words("fp16", "tf32", {"float16": 4, "float32": 1}) == (
        Containing("fp16 (4 of 5", "tf32")
    )
    assert in_words("bf16", "fp32", {"bfloat16": 4}) == "bf16 (4 of 4 layers)"


def dense():
    x = tf.compat.v1.placeholder(tf.float32, [None, 64], name="x")
    y = tf.nn.relu(tf.matmul(x, random(64, 64)))
    tf.identity(tf.matmul(y, random(64, 64)), name="out")


def in_bfloats():
    x = tf.compat.v1.placeholder(tf.float32, [None, 64], name="x")
    y = tf.matmul(tf.cast(x, tf.bfloat16), tf.cast(random(64, 64), tf.bfloat16))
    tf.identity(tf.matmul(tf.cast(y, tf.float32), random(64, 64)), name="out")


def runner(tmp_path, body, **settings) -> TensorFlowRunner:
    path = tmp_path / "graph.pb"
    path.write_bytes(b"".join(build(body, ["x"], ["out"]).serialized()))
    batches = ((random(4, 64),),)
    return TensorFlowRunner(Job(str(path), ("x",), ("out",), batches, RunConfig(**settings)))


def has_bf16(tmp_path) -> bool:
    """Return whether oneDNN has bfloat16 for this CPU: it rounds what it multiplies."""
    made, plain = runner(tmp_path, dense, precision="bf16"), runner(tmp_path, dense)
    return not np.array_equal(*(each.outputs([random(4, 64)])[0] for each in (made, plain)))


def test_the_graph_that_ran_says_in_what(tmp_path):
    """One of its layers is in bfloat16 as it is, the other one where the CPU has that."""
    expected = (
        "bf16 (2 of 2 layers)" if has_bf16(tmp_path) else "bf16 (1 of 2 layers), the others fp32"
    )
    assert runner(tmp_path, in_bfloats, precision="bf16").facts()["precision"] == expected
    assert runner(tmp_path, dense).facts()["precision"] == "fp32"


def test_bf16_is_measured_on_a_cpu_that_has_it_and_refused_on_others(tmp_path):
    """TensorFlow says nothing where oneDNN has no bfloat16 for a CPU, and computes in float32."""
    made = runner(tmp_path, dense, precision="bf16")
    if has_bf16(tmp_path):
        assert made.facts()["precision"].startswith("bf16")
    else:
        with raises(GraphError, "precision-without-effect", precision="bf16"):
            made.facts()


def test_several_are_measured_beside_each_other():
    found = RunConfigGrid(precision=("fp32", "bf16"), batch=2).settings()
    assert found == [RunConfig(2, precision="fp32"), RunConfig(2, precision="bf16")]
    assert RunConfigGrid(bf16=True).settings() == [RunConfig(precision="bf16")]
    with raises(GraphError, "give-one"):
        RunConfigGrid(bf16=True, precision="fp32").settings()
    assert RunConfig.of({"bf16": True}) == RunConfig(precision="bf16")
    assert RunConfig.of({"bf16": False}) == RunConfig()
