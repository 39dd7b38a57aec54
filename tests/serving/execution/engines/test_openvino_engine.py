"""What OpenVINO computes for a server: several signatures, and an end at the deadline."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest

from deploykit.serving.execution.engines.engine import ALL, HERE, Loading
from deploykit.serving.execution.engines.openvino_engine import OpenVinoEngine
from deploykit.serving.protocol.errors import ServingError
from deploykit.transforms.engines.engine_manifest import EngineSignature, EngineTensor
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.ir.tensors import DType
from tests.serving.engine_versions import NAME, X, content, needs_openvino
from tests.support import raises

SIZE, LAYERS = 256, 200


def deep():
    """Return what takes seconds for many rows: layers, one after the other."""
    weights = np.eye(SIZE, dtype=np.float32)
    nodes = [
        Node("x", "Placeholder").with_attrs(dtype=DType("float32"), shape=(-1, SIZE)),
        Node.constant("weights", weights),
    ]
    for _ in range(LAYERS):
        name = f"layer{len(nodes)}"
        layer = Node(name, "MatMul", (nodes[-1].name if len(nodes) > 2 else "x", "weights"))
        nodes.append(layer.with_attrs(T=DType("float32"), transpose_a=False, transpose_b=False))
    proto = GraphDef()
    for node in nodes:
        node.to_proto(into=proto.node.add())
    x, y = (EngineTensor(f"{name}:0", "float32", (-1, SIZE)) for name in ("x", nodes[-1].name))
    return replace(
        content(),
        graph_def=proto.SerializeToString(),
        signatures={NAME: EngineSignature({"x": x}, {"y": y})},
    )


@pytest.mark.sampled
@needs_openvino
def test_a_call_is_ended_at_its_deadline_and_the_next_one_answered():
    engine = OpenVinoEngine(deep(), Loading(slots=2))
    x = np.ones((40_000, SIZE), np.float32)
    for slot in (1, 2, ALL):
        with raises(ServingError, "deadline-during-run") as error:
            engine.compute(NAME, {"x": x}, ["y"], 0.1, slot)
        assert error.value.status == "DEADLINE_EXCEEDED"
        found = engine.compute(NAME, {"x": x[:2]}, ["y"], 60.0, slot)["y"]
        assert found.tolist() == x[:2].tolist()
    engine.close()


@pytest.mark.sampled
@needs_openvino
def test_with_one_thread_the_call_after_a_late_one_is_answered_as_well():
    engine = OpenVinoEngine(deep(), Loading(slots=1))
    x = np.ones((400, SIZE), np.float32)
    for rows in (2, 3):
        with contextlib.suppress(ServingError):  # it may be computed to its end
            found = engine.compute(NAME, {"x": x}, ["y"], 0.01, 1)
            assert found["y"].tolist() == x.tolist()
        found = engine.compute(NAME, {"x": x[:rows]}, ["y"], 60.0, 1)
        assert found["y"].tolist() == x[:rows].tolist()
    engine.close()


@needs_openvino
def test_signatures_with_the_same_inputs_are_one_compiled_graph_and_others_their_own():
    each = content()
    halves = EngineTensor("product:0", "float32", (-1, 1))
    x, inner = each.signatures[NAME].inputs["x"], EngineTensor("product:0", "float32", (-1, 1))
    signatures = {
        **each.signatures,
        "halves": EngineSignature({"number": x}, {"half": halves}),
        "more": EngineSignature({"half": inner}, dict(each.signatures[NAME].outputs)),
    }
    engine = OpenVinoEngine(replace(each, signatures=signatures), Loading(slots=2))
    assert engine._beside[NAME] is engine._beside["halves"]
    assert engine._beside[NAME] is not engine._beside["more"]
    assert engine.compute(NAME, {"x": X}, ["y"], None, HERE)["y"].tolist() == (X / 2 + 2).tolist()
    found = engine.compute("halves", {"number": X}, ["half"], None, 1)
    assert found.keys() == {"half"}
    assert found["half"].tolist() == (X / 2).tolist()
    assert engine.compute("more", {"half": X}, ["y"], None, 1)["y"].tolist() == (X + 2).tolist()
    engine.close()


@needs_openvino
def test_arrays_that_do_not_go_together_are_refused():
    engine = OpenVinoEngine(content(), Loading(slots=1))
    with raises(
        ServingError, "runtime-failed", runtime="OpenVINO", action="run the graph"
    ) as error:
        engine.compute(NAME, {"x": np.ones((2, 3), np.float32)}, ["y"], None, HERE)
    assert error.value.status == "INVALID_ARGUMENT"
    engine.close()


@needs_openvino
@pytest.mark.parametrize("takes_empty", [True, False])
def test_a_row_takes_the_place_of_an_empty_batch_that_it_does_not_take(takes_empty):
    engine = OpenVinoEngine(replace(content(), takes_empty=takes_empty), Loading())
    assert engine.needs_rows != takes_empty
    engine.close()
