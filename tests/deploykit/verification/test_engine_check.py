"""An engine beside TensorFlow: what is right, what is refused, and what is known to be wrong."""

import os
import re
import time

import numpy as np
import pytest

import deploykit
from deploykit.transforms.common.errors import GraphError, UnverifiedError, VerificationError
from deploykit.transforms.engines.engine_session import OpenVinoSession
from deploykit.transforms.engines.openvino_model import Compiling
from deploykit.transforms.int8.int8_kernels import flags, sums_exactly
from deploykit.transforms.runtime.child_process import ResourceLimits
from deploykit.transforms.runtime.session import Session
from deploykit.verification import engine_check
from deploykit.verification.engine_check import bar_of, compared, compared_in
from deploykit.verification.engine_feeds import engine_feeds
from tests.support import Containing, because, says, showing, shows, tf

pytest.importorskip("openvino")
RANDOM = np.random.default_rng(0)
LARGEST = 127 if sums_exactly("auto") else 63  # beyond which sums of pairs saturate
CODES = RANDOM.integers(-LARGEST, LARGEST + 1, (32, 50)).astype(np.int8)
WEIGHTS = RANDOM.normal(size=(3, 3, 3, 8)).astype(np.float32)


def frozen(function, *shapes, dtype="float32"):
    specs = [tf.TensorSpec(shape, dtype) for shape in shapes]
    return deploykit.freeze(tf.function(function, input_signature=specs))


def rounded(values, low=-1.0):
    """Return 8-bit codes of values as an int8 layer reads them, times int8 weights."""
    codes = tf.constant(CODES)
    weights = tf.cast(codes, tf.float32) * tf.constant(np.full(50, 0.01, np.float32))
    read = tf.quantization.fake_quant_with_min_max_vars(values, low, 1.0, 8, low < 0)
    return tf.matmul(read, weights)


def net():
    def function(x):
        return tf.nn.softmax(
            tf.reduce_mean(tf.nn.relu(tf.nn.conv2d(x, WEIGHTS, 1, "SAME")), [1, 2])
        )

    return frozen(function, [None, 9, 9, 3])


def runners(graph, compiling=None):
    content = b"".join(graph.serialized())
    return Session(content), OpenVinoSession(content, compiling or Compiling())


def check(graph, bar=None, compiling=None, data=None):
    feeds, _ = engine_feeds(graph, data)
    return compared(graph, runners(graph, compiling), feeds, bar or bar_of(graph))


def right():
    """Yield functions of which OpenVINO computes what TensorFlow does, and their inputs."""

    def several(a, b):
        return a @ tf.transpose(b), a * 2

    def pairs(a, b):
        return tf.matmul(a, b, transpose_b=True)

    def chosen(x):
        return tf.math.top_k(x, 3)

    def sequence(ids, mask):
        rows = tf.gather(tf.constant(RANDOM.normal(size=(30, 4)).astype(np.float32)), ids % 30)
        return tf.reduce_sum(rows * tf.cast(mask, tf.float32)[..., None], 1)

    return {
        "several inputs and outputs": (
            lambda a, b: (a @ tf.transpose(b), a * 2),
            "f",
            (None, 3),
            (4, 3),
        ),
        "a scalar beside": (lambda a, s: a * s, "f", (None, 3), ()),
        "a fixed batch": (lambda a: a * 2 + 1, "f", (2, 3)),
        "any rank": (lambda a: a * 2 + 1, "f", None),
        "a sequence": (sequence, "i", (None, None), (None, None)),
        "pairs of rows": (
            lambda a, b: tf.matmul(a, b, transpose_b=True),
            "f",
            (None, 3),
            (None, 3),
        ),
        "a mean of all rows": (lambda a: tf.reduce_mean(a), "f", (None, 3)),
        "a choice": (chosen, "f", (None, 20)),
        "codes": (rounded, "f", (None, 32)),
        "a choice behind codes": (lambda a: chosen(rounded(a)), "f", (None, 32)),
    }


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["several inputs and outputs", "a scalar beside", "a fixed batch",
    "any rank", "a sequence", "pairs of rows", "a mean of all rows", "a choice", "codes",
    "a choice behind codes"])  # fmt: skip
def test_shapes_of_all_kinds_are_right(name):
    function, kind, *shapes = right()[name]
    graph = frozen(function, *shapes, dtype="float32" if kind == "f" else "int32")
    found = check(graph)
    assert found.why == ""
    found.require()
    batches = [case.batch for case in found.cases]
    if "a fixed" in name or "any rank" in name:
        assert 0 not in batches
    elif "rows" in name:
        assert batches == [3, 1]
        assert because("no-output-by-row") in found.left_out[0]
    else:
        assert batches == [3, 1, 0]
        assert all(len(case.expected[name]) == case.batch for case in found.cases
                   for name in graph.outputs if "several" not in name)  # fmt: skip
    assert all((bar is None) == (name == "a choice behind codes") for bar in found.bars.values())


def wrong():
    """Yield what OpenVINO is known to get wrong, with what is said of it."""

    def loop(values):
        def halve(i, y):
            return i + 1, y * 0.5 + values

        return tf.while_loop(lambda i, y: i < 4, halve, [0, values])[1]

    def highest(x):
        return rounded(tf.reduce_max(x, 1))

    def lowest(x):
        return rounded(tf.reduce_min(x, 1))

    return {
        "a loop": (loop, (2, 3), showing("output-error", output="output_0")),
        "a loop of a batch": (loop, (None, 3), showing("shape-got", expected=[3, 3])),
        "highest of floats": (highest, (None, 9, 32), showing("output-sqnr", expected=20)),
        "lowest of floats": (lowest, (None, 9, 32), showing("output-sqnr", expected=20)),
        "lrn": (tf.nn.lrn, (None, 4, 4, 8), showing("output-error", allowed=Containing("0.0005"))),
    }  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name", ["a loop", "a loop of a batch", "highest of floats", "lowest of floats", "lrn"]
)
def test_what_is_silently_wrong_departs(name):
    function, shape, departs = wrong()[name]
    found = check(frozen(function, shape))
    assert found.departs == departs
    with pytest.raises(VerificationError, match="'output_0'"):
        found.require()


@pytest.mark.skipif(
    flags().isdisjoint({"avx512_bf16", "amx_bf16"}), reason="OpenVINO computes in float32 here"
)
def test_bfloat16_departs_in_floats_and_is_right_where_it_was_asked_for():
    graph = net()
    compiling = Compiling(precision="bf16")
    departs = check(graph, compiling=compiling).departs
    assert shows(departs, "output-error", allowed=Containing("0.0005"))
    found = check(graph, bar_of(graph, compiling), compiling)
    assert found.why == ""
    assert 20 < found.sqnr_db[graph.outputs[0]] < 60


def test_whole_numbers_beyond_32_bits_are_no_answer_but_an_error():
    graph = frozen(lambda ids: ids % 7, (None,), dtype="int64")
    assert check(graph).why == ""
    far = {graph.inputs[0]: np.array([1, 2, 5_000_000_000])}
    assert shows(check(graph, data=far).refused, "openvino-whole-numbers", value=5000000000)


def test_what_openvino_lacks_is_refused_by_name():
    def with_constant(x):
        return x * 2, tf.constant([1.0])

    for function, dtype, words in (
        (tf.strings.length, "string", "'input' .*string"),
        (tf.math.lgamma, "float32", says("openvino-unknown-op", op="Lgamma")),
        (with_constant, "float32", says("openvino-output-lost", names="output_1")),
    ):
        found = compared_in(frozen(function, [None], dtype=dtype))
        assert re.search(words, found.refused)
        with pytest.raises(GraphError):
            found.require()


def test_products_of_long_whole_numbers_are_refused_as_samples_would_not_show_them():
    def hashed(ids):
        return ids * 100_003 % 1_000

    def widened(ids):
        return tf.cast(ids, tf.int64) ** 2

    for function, dtype in ((hashed, "int64"), (widened, "int32")):
        said = compared_in(frozen(function, (None,), dtype=dtype)).refused
        assert shows(said, "product-of-wide", type="int64")

    def of_sizes(values):
        sizes = tf.shape(values, out_type=tf.int64)
        return tf.reshape(values, [sizes[0] * sizes[1]])

    assert check(frozen(of_sizes, (None, None))).why == ""


def test_sums_at_places_that_are_fed_are_refused_as_one_may_come_twice():
    def scattered(places):
        return tf.scatter_nd(places, tf.cast(places[:, 0] + 1, tf.float32), [8])

    graph = frozen(scattered, (None, 1), dtype="int32")
    assert "ScatterNd) sums" in compared_in(graph).refused
    twice = {graph.inputs[0]: np.array([[1], [2], [1]], np.int32)}  # why it is refused
    assert "expected 4 at [1], got 2" in check(graph, data=twice).departs


@pytest.mark.sampled
def test_an_engine_that_takes_no_empty_batch_is_given_a_row():
    found = check(frozen(lambda x: tf.nn.max_pool2d(x, 2, 2, "SAME"), (None, 4, 4, 2)))
    assert found.why == ""
    assert not found.takes_empty
    assert [case.batch for case in found.cases] == [3, 1]
    assert shows(found.left_out[0], "row-of-zeros")


@pytest.mark.parametrize("in_branch", [False, True])
def test_random_numbers_are_refused_by_name_as_a_seed_may_make_the_first_ones_equal(in_branch):
    def made(x):
        draw = lambda: x + tf.random.uniform(tf.shape(x), seed=3)  # noqa: E731
        if not in_branch:
            return draw()
        return tf.raw_ops.If(
            cond=tf.reduce_sum(x) > 0,
            input=[x],
            Tout=[tf.float32],
            then_branch=body(tf.random.uniform),
            else_branch=body(tf.zeros),
        )[0]

    def body(make):
        function = tf.function(lambda x: make(tf.shape(x)))
        return function.get_concrete_function(tf.TensorSpec((None, 3), tf.float32))

    found = compared_in(frozen(made, (None, 3)))
    assert shows(found.refused, "draws-random", op="RandomUniform")


def test_answers_that_change_prove_nothing():
    """However it comes that TensorFlow gives something else each time."""
    graph = frozen(lambda x: x + tf.random.uniform(tf.shape(x)), (None, 3))
    found = changed_check(graph, lambda a: a + 1)
    assert found.not_compared == because("tensorflow-changes")
    with pytest.raises(UnverifiedError):
        found.require()


def test_constant_answers_prove_nothing():
    found = check(frozen(lambda x: x * 0, (None, 3)))
    assert found.not_compared == because("engine-constant")


class Other:
    """An engine that gives something else."""

    def __init__(self, session, change):
        self._session, self._change = session, change

    def run(self, fetches, feeds):
        return [self._change(each) for each in self._session.run(fetches, feeds)]


def changed_check(graph, change, **given):
    sessions = runners(graph)
    return compared(graph, (sessions[0], Other(sessions[0], change)), engine_feeds(graph)[0],
                    bar_of(graph), **given)  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("change", [
    lambda a: a[::-1], lambda a: a.astype(np.float64), lambda a: a[:, :-1], lambda a: a * 1.01,
    lambda a: a * np.nan, lambda a: a[:1] if len(a) else a,
])  # fmt: skip
def test_a_changed_answer_departs(change):
    assert changed_check(net(), change).departs
    assert changed_check(net(), lambda a: a * np.float32(1 + 1e-6)).why == ""


def test_codes_that_lose_more_than_a_decibel_to_the_float_model_depart():
    graph = frozen(rounded, (None, 32))
    near = frozen(lambda values: rounded(values) + 0.1, (None, 32))
    floats = Session(b"".join(near.serialized()))
    assert changed_check(graph, lambda a: a, floats=floats).why == ""
    departs = changed_check(graph, lambda a: a * np.float32(0.93), floats=floats).departs
    assert shows(departs, "noise-beyond-float", most=1)


class Dying:
    """What ends its process in its first call."""

    def __init__(self, *_):
        self._calls = 0

    def run(self, fetches, feeds):
        os.abort()


class Waiting(Dying):
    """What gives no answer."""

    def run(self, fetches, feeds):
        time.sleep(60)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "said"), [
    (Dying, says("child-died", runs="OpenVINO", signal="SIGABRT")),
    (Waiting, says("child-timeout", runs="OpenVINO", seconds=3)),
])  # fmt: skip
def test_the_end_of_an_engine_is_a_sentence(monkeypatch, kind, said):
    started = engine_check._InChild.__init__

    def with_other(self, name, path, *more):
        started(self, name, path, *more)
        if name == "OpenVINO":
            self._worker.close()
            self._kind = f"{__name__}:{kind.__name__}"
            self._worker = self._started()

    monkeypatch.setattr(engine_check._InChild, "__init__", with_other)
    with ResourceLimits(seconds=3):
        found = compared_in(net())
    assert re.search(said, found.refused)


def test_both_run_in_children_on_samples_of_the_user():
    samples = RANDOM.normal(size=(12, 9, 9, 3)).astype(np.float32)
    graph = net()
    found = compared_in(graph, data={graph.inputs[0]: samples}, float_graph=graph)
    assert found.why == ""
    assert [case.batch for case in found.cases] == [3, 1, 3, 1, 0]
    fed = [case.feeds[graph.inputs[0]] for case in found.cases]
    assert all(any((row == each).all() for each in samples) for feed in fed for row in feed)
