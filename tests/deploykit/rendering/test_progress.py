"""How far work has come, by a made-up clock."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploykit.rendering import progress
from deploykit.rendering.progress import Work, clock_time, rounded_up, unseen, watch_with, working
from tests.support import Containing, because


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Seen:
    """A watcher that notes what people would read."""

    def __init__(self):
        self.events, self.lines = [], []

    def began(self, work):
        self.take("began", work)

    def stepped(self, work):
        self.take("stepped", work)

    def moved(self, work):
        self.take("moved", work)

    def ended(self, work):
        self.take("ended", work)

    def take(self, event, work):
        self.work = work
        self.events.append((event, work.title))
        self.lines.append(work.line)


@pytest.fixture
def seen(monkeypatch):
    monkeypatch.setattr(progress, "_shown", progress._Shown(progress._shown.watcher))
    watcher = Seen()
    watcher.clock = Clock()
    watch_with(watcher, watcher.clock)
    return watcher


def test_the_line_says_step_part_and_times(seen):
    with working(
        "ship", "check", "calibrate", "serve", expected={"check": 10, "serve": 20}
    ) as work:
        times = because("time-of-about", time="0:00", total="0:35")
        assert work.line == f"ship  {times}"  # 30, and it has not begun
        work.begin("check")
        seen.clock.now += 10
        work.begin("calibrate")
        work.expect({"calibrate": 190})
        seen.clock.now += 120
        work("values", 0)
    assert seen.lines[-2] == Containing("[2/3] calibrate: values", "2:10", "3:50")
    assert seen.events[0] == ("began", "ship")
    assert seen.events[-1] == ("ended", "ship")


def test_without_an_expectation_only_the_time_that_passed_is_said(seen):
    with working("quantize", "rank", "time") as work:
        seen.clock.now += 61
        work.begin("time")
        assert work.line == "[2/2] time  1:01"
        assert work.total is None
        assert work.done == 0.5
    with working("benchmark") as work:
        seen.clock.now += 3661
        work("turns", 10)
        assert work.line == "benchmark: turns  1:01:01"


def test_a_step_that_overruns_moves_the_total(seen):
    with working("ship", "a", "b", expected={"a": 10, "b": 100}) as work:
        work.begin("a")
        seen.clock.now += 5
        assert work.total == pytest.approx(110)
        seen.clock.now += 95
        assert work.total == pytest.approx(100 + 10 + 100)
        work.begin("b")
        seen.clock.now += 99.99
        assert work.times == because("time-of-about", time="3:19", total="3:30")
        seen.clock.now += 1000
        assert work.elapsed < work.total < 1.2 * work.elapsed


def test_parts_tell_better_than_an_expectation(seen):
    with working("ship", "a", expected={"a": 10}) as work:
        work.begin("a")
        for _ in range(5):  # each takes ten times as long
            work("part", 10)
            seen.clock.now += 10
        assert work.total == pytest.approx(40 + 0.6 * (0.6 * 10 + 40))  # 4 of 10 took 40 s
        seen.clock.now += 15
        assert work.total == pytest.approx(65 * 1.1)
        assert work.done > 0.4


def test_steps_left_out_or_kept_count_as_done(seen):
    with working("ship", "a", "b", "c", "d", expected=dict.fromkeys("abcd", 10)) as work:
        work.begin("c")
        assert work.done == pytest.approx(0.5)
        work.expect({"c": 0})
        work.begin("d")
        assert work.done == pytest.approx(2 / 3)
        assert work.total == pytest.approx(10)


def test_an_expectation_of_no_step_is_a_mistake(seen):
    with pytest.raises(ValueError, match=because("step-unknown", work="ship", name="calibrat")):
        unseen("ship", "calibrate").expect({"calibrat": 3})


def test_work_within_other_work_shows_as_its_part(seen):
    with working("ship", "open", "quantize", expected={"open": 10, "quantize": 30}) as work:
        work.begin("open")
        with working("freeze") as inner:
            inner("run the file", 0)
            assert seen.lines[-1] == Containing("[1/2] open: freeze", "run the file")
            assert seen.work is work
        assert work.part == ""
        work.begin("quantize")
        with working("quantize", "time layers", "judge") as inner:
            inner.begin("time layers")("dense", 4)
            inner("conv", 4)
            assert seen.lines[-1] == Containing("[2/2] quantize", "layers: conv", "0:00", "0:25")
            inner.begin("judge")
            assert work.done == pytest.approx((10 + 0.5 * 30) / 40)
            with working("benchmark") as third:
                third("turns", 0)
                assert work.part == "judge: benchmark: turns"
    assert {title for _, title in seen.events} == {"ship"}
    assert [event for event, _ in seen.events].count("stepped") == 2


def test_work_within_a_part_is_done_of_that_part(seen):
    with working("tune") as work:
        work("first", 4)
        work("second", 4)
        with working("benchmark") as inner:
            inner("a", 2)
            inner("b", 2)
            assert work.done == pytest.approx(1.5 / 4)


def test_work_in_another_thread_is_not_seen(seen):
    def beside():
        with working("freeze") as work:
            work("part", 1)

    with working("benchmark"):
        other = threading.Thread(target=beside)
        other.start()
        other.join()
    assert seen.events == [("began", "benchmark"), ("ended", "benchmark")]


def test_an_error_ends_work_and_what_is_around_it(seen):
    def fail():
        with working("ship", "a") as work, working("freeze"):
            work.begin("a")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert seen.events[-1] == ("ended", "ship")
    with working("verify"):
        assert seen.events[-1] == ("began", "verify")


def test_names_cannot_break_the_line(seen):
    with working("ship") as work:
        work("a\nb\x1b[31m\rc", 0)
        assert work.line == r"ship: a\nb\x1b[31m\rc  0:00"


SECONDS = st.floats(0, 5000)
MOVES = st.recursive(
    st.one_of(
        st.tuples(st.just("part"), st.integers(0, 5), SECONDS),
        st.tuples(st.just("begin"), st.integers(0, 3), SECONDS),
        st.tuples(st.just("expect"), st.integers(0, 3), SECONDS),
    ),
    lambda inner: st.tuples(st.just("within"), st.integers(0, 3), st.lists(inner, max_size=5)),
    max_leaves=12,
)
STEPS = ("a", "b", "c", "d")


def play(moves, work, clock, look):
    """Make the moves, and look after each; steps that came already are not begun again."""
    for kind, number, more in moves:
        if kind == "within":
            with working(STEPS[number], *STEPS[: 4 - number]) as inner:
                play(more, inner, clock, look)
        elif kind == "part":
            clock.now += more
            work(f"part {number}", number)
        elif number < len(work.steps) and kind == "expect":
            work.expect({STEPS[number]: more})
        elif number < len(work.steps) and number >= work.number:
            clock.now += more
            work.begin(STEPS[number])
        look()


@pytest.mark.sampled
@settings(max_examples=60)
@given(
    expected=st.dictionaries(st.sampled_from(STEPS), SECONDS),
    moves=st.lists(MOVES, min_size=1, max_size=8),
)
def test_the_share_never_falls_and_the_total_is_never_too_little(expected, moves):
    before, clock, shares = progress._shown, Clock(), [0.0]
    progress._shown = progress._Shown(Seen(), clock)

    def look():
        assert shares[-1] <= work.done <= 1
        shares.append(work.done)
        if work.total is not None:
            assert work.elapsed <= work.total
            assert rounded_up(work.total) > int(work.elapsed)
            total = clock_time(rounded_up(work.total))
            times = because("time-of-about", time=clock_time(work.elapsed), total=total)
            assert work.times == times

    try:
        with working("ship", *STEPS, expected=expected) as work:
            play(moves, work, clock, look)
    finally:
        progress._shown = before


def test_the_property_fails_for_a_share_that_is_not_kept(monkeypatch):
    """What the test above sees: with an expectation revised, the share by itself does fall."""
    work = Work("ship", ("a", "b"), progress.Watcher(), {"a": 10, "b": 10}, Clock())
    work.begin("b")
    assert work.done == 0.5
    work.expect({"b": 1000})
    assert work.done == 0.5
    work._done = 0.0
    assert work.done < 0.01


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.9, "0:59"), (60, "1:00"), (3723, "1:02:03")]
)
def test_clock_time(seconds, text):
    assert clock_time(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "more"), [(0, 5), (5, 10), (59.9, 60), (60, 70), (601, 630), (3600, 3660)]
)
def test_rounded_up(seconds, more):
    assert rounded_up(seconds) == more
