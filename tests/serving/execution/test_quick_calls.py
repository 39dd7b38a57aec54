"""What the time of one call says about the next, and what ends a call that takes too long."""

import itertools
import time

import numpy as np
import pytest

from deploykit.serving.execution.data_plane import Plane, Requester, Target
from deploykit.serving.execution.engines.engine import HERE, Loading
from deploykit.serving.execution.engines.open_version import open_version
from deploykit.serving.execution.slots import SECONDS, QuickCalls
from deploykit.transforms.ir.protos import MetaGraphDef
from tests.serving.execution.test_data_plane import One
from tests.serving.slow_model import slow
from tests.serving.small_models import half_plus

QUICK, SLOW = SECONDS / 2, SECONDS * 2
SIZES = list(itertools.product((0, 1, 2, 500), repeat=2))


def steady(*unsteady):
    return QuickCalls(MetaGraphDef(), unsteady)


def looping(op: str, inside: bool) -> MetaGraphDef:
    meta = MetaGraphDef()
    nodes = meta.graph_def.library.function.add().node_def if inside else meta.graph_def.node
    nodes.add(name="n", op=op)
    return meta


def feeds(*shape, **more):
    return {"x": np.zeros(shape, np.float32), **more}


def test_nothing_is_quick_before_it_was():
    calls = steady()
    assert not calls.include("s", feeds(1))
    calls.note("s", feeds(1), SLOW)
    assert not calls.include("s", feeds(1))
    calls.note("s", feeds(1), QUICK)
    assert calls.include("s", feeds(1))
    assert not calls.include("another", feeds(1))


@pytest.mark.parametrize("known", SIZES)
def test_a_call_that_is_larger_in_any_size_is_not_known_to_be_quick(known):
    calls = steady()
    calls.note("s", feeds(*known), QUICK)
    for shape in SIZES:
        fits = all(a <= b for a, b in zip(shape, known, strict=True))
        assert calls.include("s", feeds(*shape)) == fits, shape
    assert not calls.include("s", feeds(0))
    assert not calls.include("s", feeds(*known, y=np.zeros(1)))
    assert not calls.include("s", {"y": np.zeros(known)})


def test_bytes_of_strings_are_a_size():
    calls = steady()

    def words(*given):
        return {"x": np.array(given, object)}

    calls.note("s", words(b"1234", b"5"), QUICK)
    assert calls.include("s", words(b"", b"12345"))
    assert not calls.include("s", words(b"1234", b"56"))
    assert not calls.include("s", words(b"", b"", b""))


@pytest.mark.parametrize("known", SIZES)
def test_a_slow_call_takes_back_what_its_size_was_believed(known):
    for shape in SIZES:
        calls = steady()
        calls.note("s", feeds(*known), QUICK)
        calls.note("s", feeds(*shape), SLOW)
        fits = all(a <= b for a, b in zip(shape, known, strict=True))
        assert calls.include("s", feeds(*known)) != fits, shape


@pytest.mark.parametrize("op", ["While", "StatelessWhile", "Enter", "If", "Case", "Switch"])
@pytest.mark.parametrize("inside", [False, True])
def test_no_call_of_a_graph_that_loops_or_branches_is_quick(op, inside):
    calls = QuickCalls(looping(op, inside))
    calls.note("s", feeds(1), QUICK)
    assert not calls.include("s", feeds(1))
    calls = QuickCalls(looping("MatMul", inside))
    calls.note("s", feeds(1), QUICK)
    assert calls.include("s", feeds(1))


def test_what_decodes_photos_is_not_quick():
    calls = steady("s")
    calls.note("s", feeds(1), QUICK)
    assert not calls.include("s", feeds(1))


def timed(folder):
    """Return a servable that takes down in `options` how each call of its session may be ended."""
    servable = open_version(folder, "m", 1, Loading(slots=2))
    engine, options = servable._engines["serving_default"], []
    session_run = engine._session_run

    def run(given, fed, fetches):
        options.append(engine._run_options.FromString(given))
        return session_run(given, fed, fetches)

    engine._session_run, servable.options = run, options
    servable._quick.note("serving_default", next_rows(1), QUICK)
    return servable


def next_rows(count):
    return {"x": np.ones((count, 1), np.float32)}


@pytest.fixture
def asked():
    servables = []

    def ask(servable, inputs, seconds=60.0):

        servables.append(servable)
        plane = Plane(One(servable), 4, 2)
        caller = Requester(time.monotonic() + seconds)
        plane.predict(Target("m"), inputs, [], caller)
        return servable.options[-1]

    yield ask
    for each in {id(s): s for s in servables}.values():
        each.close()


def test_a_large_call_after_a_quick_one_can_be_ended_at_its_deadline(tmp_path, asked):
    model = timed(half_plus(tmp_path / "m", 2) / "00000123")
    quick = asked(model, next_rows(1))
    assert (quick.inter_op_thread_pool, quick.timeout_in_ms) == (-1, 0)
    large = asked(model, next_rows(500))
    assert large.inter_op_thread_pool != -1
    assert 0 < large.timeout_in_ms <= 60_000


def test_a_loop_that_was_short_can_be_ended_when_it_is_long(tmp_path, asked):
    model = timed(slow(tmp_path / "m") / "1")
    for _ in range(3):
        options = asked(model, {"x": np.array(1, np.int32)})
        assert options.inter_op_thread_pool != -1
        assert 0 < options.timeout_in_ms <= 60_000
    assert options.inter_op_thread_pool in (1, 2), "a short call is handed from thread to thread"


def test_what_failed_was_not_quick(tmp_path):
    model = timed(half_plus(tmp_path / "m", 2) / "00000123")
    examples = {"inputs": np.array([b"no example"], object)}
    model._quick.note("classify_x_to_y", examples, QUICK)
    assert model.is_quick("classify_x_to_y", examples)
    with pytest.raises(Exception, match="parse"):
        model.run("classify_x_to_y", examples, ["scores"], slot=HERE)
    assert not model.is_quick("classify_x_to_y", examples)
    model.close()
