"""What computes beyond its time is ended, as often as it takes, and never after it has ended."""

import threading

from deploykit.serving.execution.engines.engine import Deadline, Deadlines


def test_a_block_is_ended_again_and_again_until_it_is_over():
    among, ends, enough = Deadlines(), [], threading.Event()

    def end():
        ends.append(threading.current_thread())
        if len(ends) == 3:
            enough.set()

    deadline = Deadline(0.0, among)
    with deadline.watch(end):
        assert enough.wait(10)
    count = len(ends)
    assert deadline.over
    later = Deadline(0.0, among)
    with later.watch(enough.clear):
        while enough.is_set():
            pass
    assert len(ends) == count, "it was ended after its end"
    assert ends[0] is not threading.current_thread()


def test_the_earliest_is_ended_first_and_others_not_at_all():
    among, reached = Deadlines(), threading.Event()
    late, soon, never = Deadline(3600.0, among), Deadline(0.01, among), Deadline(None, among)
    with late.watch(bool), never.watch(bool), soon.watch(reached.set):
        assert reached.wait(10)
    assert (late.over, soon.over, never.over) == (False, True, False)
