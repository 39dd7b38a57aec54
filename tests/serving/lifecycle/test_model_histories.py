"""Whatever happens to versions, and in whichever order, nobody is left without one."""

import tempfile
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from deploykit.serving.lifecycle.version_folders import All, Latest, Specific
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.versions import AVAILABLE, END, LOADING, START, UNLOADING
from tests.serving.shelf import PATIENCE, Shelf

NUMBERS = st.integers(1, 5)
SEVERAL = st.frozensets(NUMBERS, max_size=2)
SOME = st.frozensets(NUMBERS, min_size=1)
POLICIES = (
    st.just(All()) | st.builds(Latest, st.integers(1, 3))
    | st.builds(Specific, SOME.map(tuple))
)  # fmt: skip
ORDER = (START, LOADING, AVAILABLE, UNLOADING, END)


def wanted_by(policy, versions):
    """Say what a policy wants in the plainest way."""
    match policy:
        case All():
            return set(versions)
        case Latest(number):
            return set(sorted(versions)[-number:])
        case Specific(named):
            return set(versions) & set(named)


class Histories(RuleBasedStateMachine):
    """Versions appear, vanish and break while calls hold them and loads are stopped."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.shelf = Shelf(Path(self.folder.name))
        self.may_load = threading.Event()
        self.may_load.set()
        load = self.shelf.models._load

        def when_it_may(name, version, folder):
            assert self.may_load.wait(PATIENCE)
            return load(name, version, folder)

        self.shelf.models._load = when_it_may
        self.policy = Latest()
        self.there = frozenset()
        self.once_broken = set()
        self.wanted_lately = [set()]  # since all was quiet
        self.calls = []
        self.seen = 0
        self.last = {}

    def teardown(self):
        self.may_load.set()
        self.rest()
        for call, _ in self.calls:
            call.close()
        self.shelf.close()
        self.folder.cleanup()

    @initialize(policy=POLICIES, versions=SOME)
    def begin(self, policy, versions):
        self.policy = policy
        self.publish(versions, frozenset())

    @rule(versions=SOME, broken=SEVERAL)
    def publish(self, versions, broken):
        """Change what is on disk and what can be loaded of it, and let it be noticed."""
        self.shelf.remove(*self.there - versions)
        self.shelf.add(*versions - self.there)
        self.there = versions
        self.shelf.broken = {("m", number) for number in broken}
        self.once_broken |= broken
        self.reload(self.policy)

    @rule(policy=POLICIES)
    def reload(self, policy):
        self.policy = policy
        self.wanted_lately.append(wanted_by(policy, self.there))
        with suppress(ServingError):  # it could not be loaded, or not at once
            self.shelf.models.configure([self.shelf.settings(policy=policy)], 0)
        self.shelf.models.poll()

    @rule(number=NUMBERS)
    def add(self, number):
        self.publish(self.there | {number}, frozenset())

    @rule()
    def empty(self):
        self.publish(frozenset(), frozenset())

    @rule()
    def stop_loads(self):
        self.may_load.clear()

    @rule()
    def go_on_loading(self):
        self.may_load.set()

    @rule(number=st.none() | NUMBERS)
    def begin_call(self, number):
        call = ExitStack()
        with suppress(ServingError):  # it is not available
            self.calls.append((call, call.enter_context(self.shelf.using("m", number))))

    @rule(which=NUMBERS)
    def end_call(self, which):
        if self.calls:
            call, _ = self.calls.pop(which % len(self.calls))
            call.close()

    @precondition(lambda self: self.may_load.is_set())
    @rule()
    def rest(self):
        """Wait until nothing moves, and compare what is there with what should be."""
        shelf = self.shelf
        held = {loaded.version for _, loaded in self.calls}
        shelf.wait(lambda: all(
            state == AVAILABLE or (state == UNLOADING and number in held)
            for number, state in shelf.now().items()
        ))  # fmt: skip
        states = shelf.now()
        wanted = self.wanted_lately[-1]
        available = {number for number, state in states.items() if state == AVAILABLE}
        failed = wanted - states.keys()
        assert failed <= self.once_broken
        for number in failed:
            (status,) = shelf.models.status("m", number)
            assert (status.state, status.code) == (END, "DATA_LOSS")
        if available & wanted or not wanted:
            assert available <= wanted
        else:
            assert len(available) <= 1
        if available:
            with shelf.models.using("m") as loaded:
                assert loaded.version == max(available)
        self.states_move_forward_and_somebody_serves()
        self.wanted_lately = [wanted]

    @invariant()
    def states_move_forward_and_somebody_serves(self):
        """An available version goes only after another came, or when none is wanted."""
        news = self.shelf.states[self.seen :]
        self.seen += len(news)
        for _, version, state, _ in news:
            before = self.last.get(version, END)
            again = state == before == LOADING
            new = state == START and before == END
            assert new or again or ORDER.index(state) > ORDER.index(before), (version, state)
            self.last[version] = state
            if before == AVAILABLE:
                others = AVAILABLE in self.last.values()
                assert others or set() in self.wanted_lately, f"nobody serves after {version}"

    @invariant()
    def nothing_in_use_is_closed(self):
        assert not any(loaded.closes for _, loaded in self.calls)


# Threads take their own turns, so a failure is not shrunk: it may not come again the same way.
Histories.TestCase.settings = settings(
    max_examples=40, stateful_step_count=30, phases=[Phase.generate]
)
TestHistories = Histories.TestCase
