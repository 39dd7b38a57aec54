"""The pipeline of the Graph Transform Tool's README, unchanged, on whole networks."""

from collections.abc import Mapping
from typing import Any

import pytest

import deploykit
from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.child_process import call
from deploykit.verification.tolerance import default_tolerance
from deploykit.verification.verify import Verification, verify
from tests.differential.original import Answer, Original
from tests.support import ops

pytestmark = pytest.mark.slow

FOLD = (
    "add_default_attributes strip_unused_nodes(type=float, shape={shape}) "
    "remove_nodes(op=Identity, op=CheckNumerics) fold_constants(ignore_errors=true) "
    "fold_batch_norms fold_old_batch_norms"
)
QUANTIZE = "quantize_weights quantize_nodes strip_unused_nodes sort_by_execution_order"
SECONDS = 300.0  # which the original may take


def sqnr(found: Verification) -> float:
    """Return the noise of the logits in dB."""
    (judged,) = (d.sqnr_db for d in found.differences if d.judged)
    return judged


def folded(graph: Graph, text: str, data: Mapping[str, Any] | None) -> Graph:
    """Return the graph after the steps of a string, each of which must keep the numbers."""
    source, bar = graph, default_tolerance(graph)
    for step in pipeline.run(graph, pipeline.parse(text)):
        assert step.error is None
        found = verify(source, step.graph, data=data, tolerance=bar)
        assert found.passed, f"{step.transform}: {found}"
        graph = step.graph
    return graph


def both(side: int) -> tuple[str, str]:
    """Return the pipeline in two halves, for images of so many pixels."""
    return FOLD.format(shape=f'"1,{side},{side},3"'), QUANTIZE


def asked(graph: Graph, text: str) -> Answer:
    """Return what the original makes of it."""
    original = Original()
    try:
        return original.ask(graph, text, SECONDS)
    finally:
        original.close()


def test_inception_v3(tmp_path):
    path = tmp_path / "model.keras"
    call("tests.real.keras_nets:save", "InceptionV3", str(path))
    frozen = deploykit.freeze(path)
    fold, quantize = both(299)
    float_graph = folded(frozen, fold, None)
    assert not {"Mul", "Rsqrt"} & ops(float_graph).keys()
    result = deploykit.transform(float_graph, quantize)
    assert ops(result)["QuantizedConv2D"] == 94
    found = verify(frozen, result)
    print(f"InceptionV3: {sqnr(found):.1f} dB")
    assert found.bar == "SQNR >= 15 dB"
    assert found.passed, found
    assert "bad shape: [1,1,1,32]" in asked(frozen, f"{fold} {quantize}").error


def test_efficientnet_lite0(efficientnet_lite0, photos):
    """8 bits are better than the original's, and still far from usable.

    The original folds none of these batch norms, which so stay in floats. Here each is a bias; but
    no codes are spent on what Relu6 cuts off, and a bias behind a depthwise layer stays float.
    """
    frozen = deploykit.freeze(efficientnet_lite0 / "frozen.pb", outputs=["probabilities"])
    fold, quantize = both(224)
    float_graph = folded(frozen, fold, photos)
    assert ops(float_graph)["BiasAdd"] == 50
    results = {
        "deploykit": deploykit.transform(float_graph, quantize),
        "GTT from the folded graph": asked(float_graph, quantize).graph(frozen),
        "GTT from the source": asked(frozen, f"{fold} {quantize}").graph(frozen),
    }
    found = {}
    for name, graph in results.items():
        each = verify(frozen, graph, data=photos)
        found[name] = sqnr(each)
        print(f"Lite0, {name}: {found[name]:.1f} dB, accuracy {each.accuracy}")
    assert found["deploykit"] >= found["GTT from the folded graph"] + 1
    assert found["deploykit"] >= found["GTT from the source"]
