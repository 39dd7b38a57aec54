"""Whole models in OpenVINO: each is right, or refused by the names of its ops.

What it gives is also held against TensorFlow by code that is none of the comparison's.
"""

import numpy as np
import pytest

import deploykit
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.child_process import call
from deploykit.verification.engine_check import EngineCheck, compared_in
from tests import pairwise
from tests.deploykit.conftest import FASHION
from tests.real import encoder

pytest.importorskip("openvino")
pytestmark = pytest.mark.sampled

NETS = ("MobileNet", "MobileNetV2", "MobileNetV3Small", "ResNet50", "InceptionV3", "DenseNet121",
        "EfficientNetB0", "NASNetMobile", "ConvNeXtTiny", "Xception")  # fmt: skip
FORMS = ("keras", "bert", "batched")


def computed(engine: str, graph: bytes, outputs: list[str], feeds: dict[str, np.ndarray]):
    """Return what an engine gives; this is for a child process."""
    from deploykit.transforms.engines.engine_session import session_in

    return session_in(engine, graph).run(outputs, feeds)


def assert_right(graph: Graph) -> EngineCheck:
    """Check that OpenVINO is found right on a graph, and is."""
    found = compared_in(graph)
    assert found.why == ""
    case = found.cases[0]
    given = (b"".join(graph.serialized()), list(graph.outputs), case.feeds)
    both = [call("tests.real.test_engines:computed", engine, *given)
            for engine in ("tensorflow", "openvino")]  # fmt: skip
    for expected, values in zip(*both, strict=True):
        assert values.shape == expected.shape
        assert np.abs(values - expected).max() <= 1e-4 * np.abs(expected).max()
    return found


@pytest.mark.parametrize("name", pairwise.drawn(__name__, NETS, 2))
def test_networks_of_keras_are_right(name, tmp_path):
    path = tmp_path / "model.keras"
    call("tests.real.keras_nets:save", name, str(path))
    found = assert_right(deploykit.optimize(deploykit.freeze(path)))
    assert [case.batch for case in found.cases][:2] == [3, 1]


@pytest.mark.parametrize("form", FORMS)
def test_text_encoders_are_right(form, tmp_path):
    call("tests.real.encoder:save", form, str(tmp_path), encoder.TINY)
    assert_right(deploykit.freeze(tmp_path))


def test_efficientnet_lite0_is_right(efficientnet_lite0):
    assert_right(deploykit.freeze(efficientnet_lite0 / "frozen.pb"))


def test_the_fashion_net_is_right():
    assert_right(deploykit.freeze(FASHION / "fashion.keras"))


def test_basic_pitch_is_right(basic_pitch):
    assert_right(deploykit.optimize(deploykit.freeze(basic_pitch)))


def test_guesslang_is_refused_as_it_takes_texts(guesslang):
    found = compared_in(deploykit.freeze(guesslang))
    assert found.refused
    with pytest.raises(GraphError):
        found.require()
