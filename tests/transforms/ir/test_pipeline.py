"""Binding a transform string to functions, and running it on a copy."""

import re

import numpy as np
import pytest

from deploykit.transforms.common.errors import GraphError, PipelineError
from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from tests.support import assert_golden, because, raises, says

FLOAT = {"T": DType("float32")}


def small() -> Graph:
    x = Node("x", "Placeholder").with_attrs(dtype=DType("float32"), shape=(2, 3))
    same = Node("same", "Identity", ("x",), device="/cpu:0").with_attrs(**FLOAT)
    unused = Node.constant("unused", np.ones(3, np.float32))
    return Graph(
        [x, same, Node("out", "Relu", ("same",)).with_attrs(**FLOAT), unused], "x", ["out"]
    )


def test_arguments_are_converted():
    (step,) = pipeline.parse("quantize_weights(minimum_size=7, per_channel=FALSE, skip=a, skip=b)")
    assert step.arguments == {"minimum_size": 7, "per_channel": False, "skip": ("a", "b")}
    assert step.ignore_errors is False
    (step,) = pipeline.parse("strip_unused_nodes(type=float, ignore_errors=True)")
    assert step.arguments == {"type": "float"}
    assert step.ignore_errors is True


WRONG = (
    "fold_constant", "core", "quantize_weights(min_size=1)", "remove_device(x=1)",
    "quantize_weights(minimum_size=1.5)", "quantize_weights(per_channel=yes)",
    "remove_device(ignore_errors=maybe)", "quantize_weights(minimum_size=1, minimum_size=2)",
    "remove_nodes",
)  # fmt: skip


@pytest.mark.golden("refusals/pipeline")
def test_wrong_parameters():
    said = []
    for text in WRONG:
        with pytest.raises(PipelineError) as found:
            pipeline.parse(text)
        first, *_, last = str(found.value).splitlines()
        assert last.endswith("^")
        said.append(f"{text}\n{first}\n")
    assert_golden(*said)


def test_the_given_graph_stays_as_it_is():
    graph = small()
    before = str(graph)
    results = list(pipeline.run(graph, pipeline.parse("remove_device remove_nodes(op=Identity)")))
    assert str(graph) == before
    assert [result.transform for result in results] == ["remove_device", "remove_nodes"]
    assert not results[0].graph["same"].device
    assert "unused" not in results[0].graph  # pruned after each step
    assert "same" not in results[1].graph
    assert "same" in results[0].graph


def test_ignore_errors_passes_over_the_step_alone():
    graph = small()
    text = "remove_device remove_nodes(op=Nonsense{}) remove_nodes(op=Identity)"
    with raises(PipelineError, "missing", source="remove_nodes", kind="op", name="Nonsense"):
        list(pipeline.run(graph, pipeline.parse(text.format(""))))
    results = list(pipeline.run(graph, pipeline.parse(text.format(", ignore_errors=true"))))
    assert results[1].error is not None
    assert str(results[1].graph) == str(results[0].graph)
    assert "same" not in results[2].graph


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ("remove_nodes({})", "parameter-missing"),
        ("quantize_weights(minimum_size=many, {})", "parameter-value"),
        ("quantize_weights({}, minimum_size=1, minimum_size=2)", "parameter-twice"),
    ],
)
def test_ignore_errors_passes_over_wrong_arguments(wrong, code):
    text = f"remove_device {wrong} remove_nodes(op=Identity)"
    with raises(PipelineError, code):
        pipeline.parse(text.format("ignore_errors=false"))
    results = list(pipeline.run(small(), pipeline.parse(text.format("ignore_errors=true"))))
    assert re.search(says(code), results[1].error)
    assert "\n" not in results[1].error
    assert str(results[1].graph) == str(results[0].graph)
    assert "same" not in results[2].graph


@pytest.mark.parametrize(
    "text", ["remove_nodes(nodes=a, ignore_errors=true)", "no_such(ignore_errors=true)"]
)
def test_ignore_errors_does_not_cover_misspelt_names(text):
    with pytest.raises(PipelineError):
        pipeline.parse(text)


def test_a_broken_graph_is_refused_before_and_after_a_step(monkeypatch):
    graph = Graph([Node("out", "Relu", ("gone",))], [], ["out"])
    with raises(GraphError, "input-missing-in-graph", tensor="gone"):
        list(pipeline.run(graph, pipeline.parse("remove_device")))

    def breaks(graph):
        graph.replace(graph["out"], graph["out"].with_data_inputs("gone"))

    monkeypatch.setattr(pipeline, "function", lambda name: breaks)
    with pytest.raises(GraphError, match=r"remove_device: .*'out'"):
        list(pipeline.run(small(), [pipeline.Step("remove_device")]))


def test_names_are_the_modules_in_the_folder():
    assert {"fold_batch_norms", "quantize_weights", "strip_unused_nodes"} <= set(pipeline.names())
    assert not {"core", "__init__"} & set(pipeline.names())


def test_an_alias_stands_for_its_transforms():
    assert pipeline.parse("obsfucate_names") == [pipeline.Step("obfuscate_names")]
    assert not set(pipeline.ALIASES) & set(pipeline.names())
    hint = because("did-you-mean", names="obsfucate_names or obfuscate_names")
    with raises(PipelineError, "missing", kind="transform", hint=hint):
        pipeline.parse("obsfuscate_name")


@pytest.mark.parametrize("alias", pipeline.ALIASES)
def test_what_an_alias_stands_for_exists(alias):
    assert set(pipeline.ALIASES[alias]) <= set(pipeline.names())
    assert [step.name for step in pipeline.parse(alias)] == list(pipeline.ALIASES[alias])


def test_an_alias_passes_its_parameters_on_where_they_fit(monkeypatch):
    meant = ("quantize_weights", "remove_device", "round_weights")
    monkeypatch.setitem(pipeline.ALIASES, "shrink", meant)
    text = "remove_device shrink(minimum_size=7, num_steps=3, ignore_errors=true)"
    assert pipeline.parse(text) == [
        pipeline.Step("remove_device"),
        pipeline.Step("quantize_weights", {"minimum_size": 7}, ignore_errors=True),
        pipeline.Step("remove_device", {}, ignore_errors=True),
        pipeline.Step("round_weights", {"num_steps": 3}, ignore_errors=True),
    ]
    with raises(
        PipelineError,
        "parameter-unknown",
        transform="shrink",
        name="steps",
        known=["minimum_size", "per_channel", "skip", "keep_sums", "ranges", "num_steps"],
    ):
        pipeline.parse("shrink(steps=3)")
    monkeypatch.setitem(pipeline.ALIASES, "rename", ("rename_op", "rename_node"))
    with raises(PipelineError, "parameter-missing", transform="rename", name="new_op_name"):
        pipeline.parse("rename(old_op_name=Add)")
