"""Quantization-aware models: TF-MOT's own, and what the command line makes of them."""

from pathlib import Path

import numpy as np
import pytest

import deploykit
from deploykit.quantization.qat import StatedData, quantize_fake_quants, stated_sensitivity
from deploykit.quantization.quantize_options import QuantizeOptions
from deploykit.quantization.result import Quantized
from deploykit.rendering.formatters.quantization import lines
from deploykit.transforms.common.errors import GraphError, NotQuantizedError
from deploykit.transforms.ir.graph import Graph
from deploykit.verification.samples import Dataset
from tests.deploykit.conftest import command_line
from tests.int8_cpus import needs_exact_sums
from tests.support import Containing, because, building, raises, random, says, shows, tf
from tests.transforms.fake_quant_nets import SIZE, Block, C, feeds, image, layer, made, net, rounded
from tests.transforms.test_fake_quants import LEAST_DB, of_four_bits, residual

ROOT = Path(__file__).parents[3]
MODELS, FASHION = ROOT / "tests/data/tf_mot", ROOT / "models/fashion/test_1000.npz"


@pytest.fixture(scope="module")
def images() -> dict[str, np.ndarray]:
    return {"image": np.load(FASHION)["images"][:400]}


def quantized(graph: Graph, engine: str = "tensorflow", **data) -> Quantized:
    return quantize_fake_quants(graph, StatedData(**data), QuantizeOptions(engine=engine))


@needs_exact_sums
@pytest.mark.parametrize("engine", ["tensorflow", "openvino"])
@pytest.mark.parametrize(("name", "layers"), [("mobile", 8), ("plain", 4)])
def test_models_of_tf_mot(name, layers, engine, images, in_process):
    """All layers, at least 40 dB, and the same class for all images."""
    if engine == "openvino":
        pytest.importorskip("openvino")
    graph = deploykit.freeze(str(MODELS / f"{name}.pb"))
    found = quantized(graph, engine, feeds=[images])
    assert not found.is_float
    assert (found.int8_layers, len(found.layers)) == (layers, layers)
    assert found.judgement.sqnr_db >= LEAST_DB
    assert found.judgement.agreement == 1
    text = "\n".join(map(str, lines(found)))
    assert shows(text, "layers-int8", count=layers, every=layers)


def test_a_partly_annotated_model(images, in_process):
    """Layers that were not annotated are kept in float32 and named; the others state all."""
    graph = deploykit.freeze(str(MODELS / "partly.pb"))
    found = quantized(graph, feeds=[images], calibrating=[images])
    why = {each.layer.split("/")[-2]: each.why_float for each in found.layers}
    assert why == {
        "quant_first": because("weights-without-fake-quant"),
        "quant_second": "",
        "quant_third": "",
        "last": because("weights-without-fake-quant"),
    }
    assert found.judgement.sqnr_db >= LEAST_DB


def without_ranges() -> Graph:
    """Return a net whose weights have fake-quants, and of whose activations one has."""

    def make():
        x = tf.compat.v1.placeholder(tf.float32, (None, *SIZE, C), name="x")
        y = layer(x, Block(), "first", 1)
        parts = [layer(y, Block(kind=kind), f"{kind}/part", 2) for kind in ("conv", "depthwise")]
        y = made(tf.concat(parts, -1), Block(), "third", 3)
        tf.identity(layer(y, Block(activation=""), "last", 4), name="out")

    return net(make)


def test_missing_ranges_are_calibrated(in_process):
    graph = without_ranges()
    before = quantized(graph, feeds=[feeds()])
    assert before.is_float
    assert before.reason == because("no-int8-layer")
    assert [bool(each.why_float) for each in before.layers] == [True] * 5
    found = quantized(graph, feeds=[feeds()], calibrating=[feeds(64)])
    assert (found.int8_layers, found.is_float) == (5, False)
    assert shows(found.notes[0], "ranges-calibrated", tensors=Containing("first/activation ", "1"))
    stated = next(each.range for each in found.layers if each.layer == "third")
    assert stated == pytest.approx((0, 1.9), rel=1e-3)
    assert found.judgement.sqnr_db >= 25


def test_clipped_codes_are_noted(in_process):
    """The code of 128 is the positive peak of the channels whose range ends there."""
    peaks = random(64, seed=1, low=0.1)
    weights = np.stack([peaks, *(C - 1) * [-peaks / 2]])

    def make(narrow: bool):
        y = tf.reshape(image(), [-1, C])
        read = rounded(weights, -peaks, peaks, "weights", narrow)
        rounded(tf.matmul(y, read, name="layer"), -4.0, 4.0, "out")

    for narrow in (True, False):
        notes = quantized(net(lambda narrow=narrow: make(narrow))).notes
        assert sum(shows(note, "codes-clipped", names="layer") for note in notes) == (not narrow)


def test_what_cannot_be_int8_is_not_written(in_process, tmp_path):
    def nothing():
        layer(image(), Block(), "out", 1)

    graph = net(nothing, ("out/activation",))
    output = tmp_path / "q.pb"
    with raises(NotQuantizedError, "float32-is-right", reason=because("no-int8-layer")) as raised:
        deploykit.quantize(graph, output=output)
    assert not output.exists()
    assert shows(raised.value.report.layers[0].why_float, "no-fake-quant-after")
    made_float = deploykit.quantize(graph, allow_float=True)
    assert made_float.report.is_float


def test_noise_is_never_written(in_process):
    graph = net(residual, ("out/out",))
    with raises(NotQuantizedError, "float32-is-right", reason=Containing("199")):
        deploykit.quantize(graph, min_sqnr=199)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"prefer": "speed"},
            says("option-reason", option="prefer", reason=because("states-scales")),
        ),
        (
            {"minimum_size": 1},
            says("option-reason", option="minimum-size", reason="is for --mode weights"),
        ),
        (
            {"keep_float": ["second"]},
            says(
                "inside-with-hint",
                hint=Containing("first"),
                reason=Containing("'second'"),
            ),
        ),
        ({"engine": "abacus"}, says("not-one-of")),
    ],
)
def test_options_that_do_nothing(options, said):
    with pytest.raises(GraphError, match=said):
        deploykit.quantize(net(of_four_bits, ("out/out",)), **options)


def test_other_modes_are_as_they_were():
    """Weights behind fake-quants are no weights to `--mode weights`."""
    with pytest.raises(NotQuantizedError, match=says("weights-too-small")):
        deploykit.quantize(net(of_four_bits, ("out/out",)), mode="weights", minimum_size=1)


@needs_exact_sums
def test_layers_are_ranked_by_what_differs_from_the_fake_quants(in_process):
    graph = net(residual, ("out/out",))
    samples = Dataset.of(graph, {"x": random(64, *SIZE, C)})
    found = stated_sensitivity(graph, samples)
    assert {each.layer for each in found.ranking} == {"first", "conv", "depthwise", "out"}
    assert min(each.sqnr_db for each in found.ranking) >= LEAST_DB
    assert found.ranges["first"].max == pytest.approx(1.9, rel=1e-3)
    assert found.together.sqnr_db >= LEAST_DB


def test_the_command_line(tmp_path):
    """Exit status 5 where nothing is int8; else the file is written, and what stays float named."""
    source, output = tmp_path / "net.pb", tmp_path / "q.pb"
    deploykit.save_graph(net(of_four_bits, ("out/out",)), source)
    said = command_line("quantize", source, "-o", output, "--keep-float", "first")
    assert said.status == 5
    assert said.stdout == Containing("float32", "out (", "'out/weights'", " 4 ", "8)")
    assert not output.exists()
    said = command_line("quantize", source, "-o", output)
    assert said.status == 0
    assert shows(said.stdout, "layers-int8", count=1, every=2)
    assert "--calibration" not in said.stderr  # which would change nothing
    assert output.exists()


@pytest.mark.slow
def test_fake_quants_of_activations_alone_need_calibration(in_process):
    """With it, the model is quantized like one without fake-quants."""

    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, (None, 8), name="x")
        y = tf.nn.relu(tf.matmul(x, random(8, 16, seed=1)))
        y = tf.quantization.fake_quant_with_min_max_args(y, 0.0, 4.0)
        tf.add(tf.matmul(y, random(16, 4, seed=2)), random(4, seed=3), name="out")
    with raises(NotQuantizedError, "float32-is-right", reason=because("no-int8-layer")):
        deploykit.quantize(graph)
    samples = {"x": random(128, 8, seed=4)}
    found = deploykit.quantize(graph, calibration=samples, allow_float=True, min_sqnr=10)
    assert found.report.samples > 0
