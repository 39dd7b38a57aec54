"""The main job on guesslang: strings in, a loop over them, a lookup table, embeddings."""

import sysconfig
from pathlib import Path

import numpy as np
import pytest

import deploykit
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.child_process import call
from deploykit.transforms.runtime.session import Session
from tests.real.everywhere import run_everywhere
from tests.support import ops

pytestmark = pytest.mark.sampled

SOURCES = {
    "html": "<!DOCTYPE html>\n<html><head><title>x</title><body><p>Hello</p></body></html>\n",
    "java": "import java.util.List;\npublic class A {\n  public static void main(String[] args) {\n"
    '    System.out.println("x");\n  }\n}\n',
    "rs": 'fn main() {\n    let mut v: Vec<i32> = Vec::new();\n    println!("{}", v.len());\n}\n',
    "sql": "SELECT name, COUNT(*) FROM users WHERE age > 3 GROUP BY name ORDER BY name;\n",
}


def answers_of(folder: str, texts: np.ndarray) -> list[np.ndarray]:
    """Return what TensorFlow's own loader makes of the model; this is done in a child process."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default(), tf.Session() as session:
        meta = tf.saved_model.loader.load(session, ["serve"], folder)
        signature = meta.signature_def["predict"]
        fetches = [signature.outputs[name].name for name in sorted(signature.outputs)]
        return session.run(fetches, {signature.inputs["content"].name: texts})


@pytest.fixture(scope="module")
def texts() -> np.ndarray:
    """Return sources in other languages, then 40 modules of Python's library."""
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    large = [path for path in modules if path.stat().st_size > 5000][:40]
    sources = [text.encode() for text in SOURCES.values()]
    return np.array(sources + [path.read_bytes() for path in large], object)


@pytest.fixture(scope="module")
def frozen(guesslang) -> Graph:
    return deploykit.freeze(guesslang, signature="predict")


@pytest.fixture(scope="module")
def optimized(frozen) -> Graph:
    return deploykit.optimize(frozen)


@pytest.fixture(scope="module")
def quantized(optimized) -> Graph:
    return deploykit.transform(optimized, "quantize_weights")


def run(graph: Graph, texts: np.ndarray) -> list[np.ndarray]:
    return Session(b"".join(graph.serialized())).run(list(graph.outputs), {graph.inputs[0]: texts})


def test_the_table_and_the_loop_are_kept(frozen, guesslang, texts):
    assert {"HashTableV2", "InitializeTableV2", "StatelessWhile"} <= set(ops(frozen))
    assert "VarHandleOp" not in ops(frozen)
    expected = call("tests.real.test_guesslang:answers_of", str(guesslang), texts)
    for found, wanted in zip(run(frozen, texts), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("stage", ["frozen", "optimized", "quantized"])
def test_languages_are_told_apart(request, stage, texts):
    graph = request.getfixturevalue(stage)
    place = [name for name in graph.outputs if "hash_table_Lookup" in name]
    names = run(graph, texts)[graph.outputs.index(place[0])].ravel().tolist()
    assert names[: len(SOURCES)] == [name.encode() for name in SOURCES]
    assert names[len(SOURCES) :].count(b"py") >= 36


def test_the_numbers_are_kept(frozen, optimized, quantized, texts):
    data = {frozen.inputs[0]: texts}
    found = deploykit.verify(frozen, optimized, data=data)
    assert found.passed, found
    assert deploykit.verify(frozen, quantized, data=data, min_sqnr=15).passed


def test_results_run_everywhere(optimized, quantized, texts):
    run_everywhere(optimized, quantized, feeds={optimized.inputs[0]: texts[:3]}, tolerance=1e-4)
