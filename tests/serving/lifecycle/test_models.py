"""Versions come and go while calls go on: the state machine with real threads and small loads."""

import re
import shutil
import threading
import weakref

import pytest

from deploykit.serving.lifecycle.lookup import Changes
from deploykit.serving.lifecycle.model_config import ModelSettings
from deploykit.serving.lifecycle.version_folders import All, Latest, Specific
from deploykit.serving.lifecycle.versions import MAX_ENDED
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.versions import (
    AVAILABLE,
    END,
    LOADING,
    START,
    UNLOADING,
    VersionStatus,
)
from deploykit.transforms.common.errors import FileError, GraphError
from tests.serving.shelf import PATIENCE, Shelf
from tests.support import Containing, because, lines_with, says, showing, shows


@pytest.fixture
def shelves(tmp_path):
    made = []

    def make(**options):
        made.append(Shelf(tmp_path, **options))
        return made[-1]

    yield make
    for shelf in made:
        shelf.close()


@pytest.fixture
def shelf(shelves):
    return shelves()


def refusal(code, act, *arguments, **named):
    """Return the message of the ServingError that a call raises; its code must be this one."""
    with pytest.raises(ServingError) as caught:
        act(*arguments, **named)
    assert caught.value.status == code, caught.value
    return caught.value.message


def use(shelf, *which, **named):
    with shelf.using(*which, **named) as loaded:
        return loaded


def test_the_latest_version_is_served(shelf):
    shelf.add(1, 3, "00000002")
    shelf.models.configure([shelf.settings()], PATIENCE)
    assert use(shelf, "m").version == 3
    assert use(shelf, "m", 3).folder == shelf.folder / "m" / "3"
    assert shelf.models.status("m") == [VersionStatus(3, AVAILABLE)]
    assert shelf.loads == [("m", 3)]


def test_the_highest_new_version_is_loaded_first(shelf):
    gate = shelf.hold(9)
    shelf.add(1, 5, 9)
    with pytest.raises(ServingError):
        shelf.models.configure([shelf.settings(policy=All())], 0)
    gate.set()
    shelf.wait(lambda: set(shelf.now().values()) == {AVAILABLE})
    assert [version for _, version in shelf.loads] == [9, 5, 1]


def test_of_several_old_versions_the_newest_stays_until_a_new_one_is_there(shelf):
    shelf.serve(1, 2, policy=Latest(2))
    gate = shelf.hold(4)
    shelf.add(3, 4)
    shelf.models.poll()
    shelf.wait(lambda: shelf.now() == {2: AVAILABLE, 3: START, 4: LOADING})
    gate.set()
    shelf.wait(lambda: shelf.now() == {3: AVAILABLE, 4: AVAILABLE})


def test_a_broken_new_version_ends_and_the_old_one_keeps_serving(shelf):
    shelf.serve(1)
    shelf.broken.add(("m", 2))
    shelf.add(2)
    shelf.models.poll()
    shelf.wait(lambda: shelf.history(2)[-1:] == [END])
    assert shelf.models.status("m") == [
        VersionStatus(1, AVAILABLE),
        VersionStatus(2, END, "DATA_LOSS", "version 2 is broken"),
    ]
    assert use(shelf, "m").version == 1
    for _ in range(3):
        shelf.models.poll()
    assert shelf.loads.count(("m", 2)) == 1, "what failed is not loaded for ever"
    shelf.add(3)
    shelf.models.poll()
    shelf.wait(lambda: shelf.now() == {3: AVAILABLE})


def test_a_version_that_failed_is_tried_anew_when_it_comes_back(shelf):
    shelf.serve(1)
    shelf.broken.add(("m", 2))
    shelf.add(2)
    shelf.models.poll()
    shelf.wait(lambda: shelf.history(2)[-1:] == [END])
    shelf.remove(2)
    shelf.models.poll()
    shelf.broken.clear()
    shelf.add(2)
    shelf.models.poll()
    shelf.wait(lambda: shelf.now() == {2: AVAILABLE})


def test_loading_is_tried_again_so_often_and_no_more(shelves):
    shelf = shelves(retries=5)
    shelf.broken.add(("m", 1))
    shelf.add(1)
    text = refusal("DATA_LOSS", shelf.models.configure, [shelf.settings()], PATIENCE)
    assert shows(
        text, "models-unavailable", count=1, reported="m: DATA_LOSS: version 1: version 1 is broken"
    )
    shelf.wait(lambda: shelf.history(1)[-1] == END)
    assert shelf.loads == [("m", 1)] * 6


def test_what_failed_lets_others_pass(shelves):
    shelf = shelves(retries=3)
    gate = shelf.hold(9)
    shelf.broken.add(("m", 9))
    shelf.add(1, 5, 9)
    refusal("DEADLINE_EXCEEDED", shelf.models.configure, [shelf.settings(policy=All())], 0)
    gate.set()
    shelf.wait(lambda: shelf.history(9)[-1] == END)
    assert [version for _, version in shelf.loads] == [9, 5, 1, 9, 9, 9]


def test_a_load_that_succeeds_at_the_second_try_leaves_no_error(shelves):
    shelf = shelves(retries=1)
    gate = shelf.hold(1)
    shelf.broken.add(("m", 1))
    shelf.add(1)
    refusal("DEADLINE_EXCEEDED", shelf.models.configure, [shelf.settings()], 0)

    def mend(name, status):
        if status.code != "OK":
            shelf.broken.clear()
        Shelf.note(shelf, name, status)

    shelf.note = mend
    gate.set()
    shelf.wait(lambda: shelf.now() == {1: AVAILABLE})
    assert shelf.models.status("m") == [VersionStatus(1, AVAILABLE)]
    assert len(shelf.loads) == 2


def test_others_are_loaded_while_one_waits_for_its_next_try(shelves):
    shelf = shelves(retries=5, retry_seconds=3600)
    shelf.broken.add(("m", 2))
    shelf.add(1, 2)
    shelf.add(1, name="n")
    settings = [shelf.settings(policy=Latest(2)), shelf.settings("n")]
    shelf.models.configure(settings, PATIENCE)
    assert shelf.now() == {1: AVAILABLE, 2: LOADING}
    assert shelf.models.status("m", 2) == [
        VersionStatus(2, LOADING, "DATA_LOSS", "version 2 is broken")
    ]
    assert shelf.now("n") == {1: AVAILABLE}
    shelf.remove(2)
    shelf.models.poll()
    assert shelf.now() == {1: AVAILABLE}, "nobody waits for what is not wanted"


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (FileError("there is no saved_model.pb"), "NOT_FOUND", "there is no saved_model.pb"),
        (GraphError("this is no SavedModel"), "FAILED_PRECONDITION", "this is no SavedModel"),
        (MemoryError(), "RESOURCE_EXHAUSTED", Containing("memory")),
        (KeyError("x"), "INTERNAL", "KeyError: 'x'"),
    ],
)
def test_what_stops_a_load_has_a_code(shelf, error, code, message):
    def load(name, version, folder):
        raise error

    shelf.models._load = load
    shelf.add(1)
    refusal(code, shelf.models.configure, [shelf.settings()], PATIENCE)
    shelf.wait(lambda: shelf.history(1)[-1] == END)
    assert shelf.models.status("m") == [VersionStatus(1, END, code, message)]


def test_of_many_models_some_are_named(shelf):
    names = [f"m{n:02}" for n in range(23)]
    for name in names:
        shelf.add(1, name=name)
    shelf.models.configure([shelf.settings(name) for name in names], PATIENCE)
    said = refusal("NOT_FOUND", use, shelf, "m")
    served = showing("models-served", names=Containing("m00, m01, ", ", m19, ", "3"))
    assert shows(said, "servable-missing", what="Latest(m)", served=served)


def test_a_version_is_closed_after_its_last_call(shelf):
    shelf.serve(1)
    with shelf.using("m") as first, shelf.using("m", 1) as second:
        assert first is second
        shelf.add(2)
        shelf.models.poll()
        shelf.wait(lambda: shelf.history(1)[-1] == UNLOADING)
        assert use(shelf, "m").version == 2
        assert shows(
            refusal("NOT_FOUND", use, shelf, "m", 1),
            "servable-missing",
            what="Specific(m, 1)",
            served=because("versions-served", model="m", versions=2),
        )
        assert not first.closed.is_set()
    assert first.closed.wait(PATIENCE)
    shelf.wait(lambda: shelf.history(1)[-1] == END)


def test_no_call_fails_or_waits_over_a_hundred_swaps(shelf):
    shelf.serve(1)
    over, failures, calls = threading.Event(), [], [0] * 4

    def keep_calling(which):
        while not over.is_set():
            try:
                with shelf.models.using("m") as loaded:
                    if loaded.closed.is_set():
                        failures.append(f"{loaded.version} is closed")
                calls[which] += 1
                over.wait(0.0002)  # else the callers hold the interpreter, and nothing moves
            except ServingError as error:
                failures.append(str(error))

    callers = [threading.Thread(target=keep_calling, args=(which,)) for which in range(len(calls))]
    for caller in callers:
        caller.start()
    try:
        for number in range(2, 102):
            shelf.add(number)
            shelf.remove(number - 1)
            shelf.models.poll()
            shelf.wait(lambda number=number: shelf.history(number - 1)[-1] == END)
    finally:
        over.set()
        for caller in callers:
            caller.join(PATIENCE)
    assert not failures, failures[:3]
    assert all(calls)


def test_nothing_keeps_a_version_that_ended(shelf):
    shelf.serve(1)
    with shelf.models.using("m") as loaded:
        alive = weakref.ref(loaded)
    del loaded
    shelf.objects.clear()
    shelf.add(2)
    shelf.models.poll()
    shelf.wait(lambda: shelf.history(1)[-1] == END)
    assert alive() is None


def test_a_call_that_fails_gives_its_version_back(shelf):
    shelf.serve(1)
    with pytest.raises(ZeroDivisionError), shelf.using("m") as loaded:
        raise ZeroDivisionError
    shelf.add(2)
    shelf.models.poll()
    assert loaded.closed.wait(PATIENCE)


def test_a_version_that_fails_to_close_ends_nevertheless(shelf):
    shelf.serve(1)
    loaded = use(shelf, "m")

    def close():
        whole()
        raise OSError("it does not let go")

    whole, loaded.close = loaded.close, close
    shelf.add(2)
    shelf.models.poll()
    shelf.wait(lambda: shelf.history(1)[-1] == END)
    assert shelf.now() == {2: AVAILABLE}


def test_an_emptied_base_path_unloads_all(shelf, caplog):
    shelf.serve(1)
    shelf.remove(1)
    shelf.models.poll()
    shelf.wait(lambda: shelf.now() == {})
    assert shows(
        refusal("NOT_FOUND", use, shelf, "m"),
        "servable-missing",
        what="Latest(m)",
        served=because("versions-served", model="m", versions="none"),
    )
    shelf.models.poll()
    assert len(lines_with(caplog.text, "base-path-without-version")) == 1


def test_a_missing_base_path_changes_nothing_and_is_told_once(shelf, caplog):
    shelf.serve(1)
    shutil.move(shelf.folder / "m", shelf.folder / "away")
    for _ in range(3):
        shelf.models.poll()
    assert shelf.now() == {1: AVAILABLE}
    base = shelf.folder / "m"
    assert caplog.messages == [Containing(f"{base}", " m ", f"{base}: No such file or directory")]
    shutil.move(shelf.folder / "away", shelf.folder / "m")
    shelf.models.poll()
    shutil.move(shelf.folder / "m", shelf.folder / "away")
    shelf.models.poll()
    assert len(caplog.messages) == 2, "it was well in between, so this is news"


def test_one_missing_base_path_stops_no_other_model(shelf):
    shelf.add(1)
    settings = [ModelSettings("gone", shelf.folder / "gone"), shelf.settings()]
    text = refusal("INVALID_ARGUMENT", shelf.models.configure, settings, PATIENCE)
    assert text == Containing(f"{shelf.folder / 'gone'}", " gone ")
    assert shelf.now() == {1: AVAILABLE}
    assert not shelf.models.ready
    shelf.add(1, name="gone")
    shelf.models.poll()
    shelf.wait(lambda: shelf.models.ready)
    assert shelf.models.names == ["gone", "m"]


def test_folders_are_polled_without_being_asked(shelves):
    shelf = shelves(poll_seconds=0.001)
    shelf.serve(1)
    shelf.add(2)
    shelf.wait(lambda: shelf.now() == {2: AVAILABLE})


def test_what_failed_in_one_folder_is_tried_in_another(shelf):
    shelf.broken.add(("m", 1))
    shelf.add(1)
    refusal("DATA_LOSS", shelf.models.configure, [shelf.settings()], PATIENCE)
    shelf.broken.clear()
    shelf.add(1, name="other")
    shelf.models.configure([ModelSettings("m", shelf.folder / "other")], PATIENCE)
    assert use(shelf, "m").folder == shelf.folder / "other" / "1"


def test_what_waits_to_be_tried_again_is_tried_where_it_lies_now(shelves):
    shelf = shelves(retries=5, retry_seconds=3600)
    shelf.broken.add(("m", 1))
    shelf.add(1)
    refusal("DATA_LOSS", shelf.models.configure, [shelf.settings()], PATIENCE)
    shelf.broken.clear()
    shelf.add(1, name="other")
    shelf.models.configure([ModelSettings("m", shelf.folder / "other")], PATIENCE)
    assert use(shelf, "m").folder == shelf.folder / "other" / "1"


def test_a_version_in_another_folder_is_not_loaded_again(shelf, caplog):
    shelf.serve(1)
    shelf.add(1, name="other")
    shelf.models.configure([ModelSettings("m", shelf.folder / "other")], PATIENCE)
    assert shelf.loads == [("m", 1)]
    loaded = {"version": 1, "model": "m", "folder": shelf.folder / "m" / "1"}
    assert because("version-not-reloaded", **loaded) in caplog.text


MODELS = because("models-served", names="m")
VERSIONS = because("versions-served", model="m", versions=1)
NO_LABEL = says("version-label-unknown", label="x")


def no_servable(what, served):
    return says("servable-missing", what=what, served=served)


def no_version(what, model, served):
    return says("model-version-missing", what=what, model=model, served=served)


@pytest.mark.parametrize(
    ("which", "code", "message"),
    [
        (("x",), "NOT_FOUND", no_servable("Latest(x)", MODELS)),
        (("../m",), "NOT_FOUND", no_servable("Latest(../m)", MODELS)),
        (("x", 1), "NOT_FOUND", no_servable("Specific(x, 1)", MODELS)),
        (("m", 7), "NOT_FOUND", no_servable("Specific(m, 7)", VERSIONS)),
        (("x", 0), "NOT_FOUND", no_servable("Latest(x)", MODELS)),
        (("m", None, "x"), "INVALID_ARGUMENT", NO_LABEL),
        (("x", None, "x"), "INVALID_ARGUMENT", NO_LABEL),
    ],
)
def test_what_cannot_be_used(shelf, which, code, message):
    shelf.serve(1)
    assert re.fullmatch(message, refusal(code, use, shelf, *which))


@pytest.mark.parametrize(
    ("which", "code", "message"),
    [
        (("x",), "NOT_FOUND", no_version("any versions", "x", MODELS)),
        (("x", 1), "NOT_FOUND", no_version("version 1", "x", MODELS)),
        (("m", 7), "NOT_FOUND", no_version("version 7", "m", VERSIONS)),
        (("m", None, "x"), "INVALID_ARGUMENT", NO_LABEL),
    ],
)
def test_what_has_no_status(shelf, which, code, message):
    shelf.serve(1)
    assert re.fullmatch(message, refusal(code, shelf.models.status, *which))


def test_labels_name_versions(shelf):
    shelf.serve(1, 2, policy=All())
    labels = {"stable": 1, "canary": 2}
    shelf.models.configure([shelf.settings(policy=All(), labels=labels)], PATIENCE)
    assert use(shelf, "m", label="stable").version == 1
    assert use(shelf, "m", label="canary").version == 2
    assert [each.version for each in shelf.models.status("m", None, "canary")] == [2]
    shelf.models.configure([shelf.settings(policy=All(), labels={"stable": 2})], PATIENCE)
    assert use(shelf, "m", label="stable").version == 2
    refusal("INVALID_ARGUMENT", use, shelf, "m", label="canary")
    assert len(shelf.loads) == 2, "labels load nothing"


def test_a_label_needs_an_available_version(shelf):
    shelf.serve(1)
    labelled = [shelf.settings(labels={"stable": 2}, policy=All())]
    shelf.add(2)
    assert shows(
        refusal("FAILED_PRECONDITION", shelf.models.configure, labelled, PATIENCE),
        "label-version-unavailable",
        number=2,
        model="m",
    )
    shelf.models.poll()
    shelf.wait(lambda: shelf.now() == {2: AVAILABLE})  # the policy is the old one: nothing changed


def test_an_early_label_may_be_new_but_not_moved(shelves):
    shelf = shelves(early_labels=True)
    shelf.add(1)
    shelf.models.configure([shelf.settings(labels={"next": 2, "now": 1})], PATIENCE)
    assert use(shelf, "m", label="now").version == 1
    missing = refusal("NOT_FOUND", use, shelf, "m", label="next")
    assert re.fullmatch(no_servable("Specific(m, 2)", VERSIONS), missing)
    moved = [shelf.settings(labels={"next": 2, "now": 2})]
    refusal("FAILED_PRECONDITION", shelf.models.configure, moved, PATIENCE)
    assert use(shelf, "m", label="now").version == 1
    shelf.add(2)
    shelf.models.poll()
    shelf.wait(lambda: shelf.now() == {2: AVAILABLE})
    shelf.models.configure(moved, PATIENCE)
    assert use(shelf, "m", label="now").version == 2


def test_a_reload_unloads_what_is_not_named_and_loads_what_is_new(shelf):
    shelf.serve(1)
    held = shelf.objects[0]
    shelf.add(4, name="n")
    with shelf.using("m"):
        shelf.models.configure([shelf.settings("n")], PATIENCE)
        assert use(shelf, "n").version == 4
        assert shows(
            refusal("NOT_FOUND", use, shelf, "m"),
            "servable-missing",
            what="Latest(m)",
            served=because("models-served", names="n"),
        )
        assert not held.closed.is_set()
    shelf.wait(lambda: shelf.now() == {})
    assert shelf.models.status("m") == [VersionStatus(1, END)]
    assert shelf.models.names == ["n"]
    shelf.models.configure([shelf.settings("n"), shelf.settings()], PATIENCE)
    assert shelf.loads == [("m", 1), ("n", 4), ("m", 1)]


def test_a_reload_returns_when_the_named_versions_are_served(shelf):
    shelf.add(1, 2)
    shelf.models.configure([shelf.settings(policy=Specific((1,)))], PATIENCE)
    shelf.models.configure([shelf.settings(policy=Specific((1, 2)))], PATIENCE)
    assert shelf.now() == {1: AVAILABLE, 2: AVAILABLE}
    wrong = [shelf.settings(policy=Specific((2, 5)))]
    assert shows(
        refusal("NOT_FOUND", shelf.models.configure, wrong, PATIENCE),
        "models-unavailable",
        count=1,
        reported=Containing("NOT_FOUND: "),
    )
    assert shelf.now()[2] == AVAILABLE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda m: [m, m],
            says("config-model-twice", name="m"),
        ),
        (
            lambda m: [ModelSettings("m", m.base_path, platform="caffe")],
            says("config-platform-changed", name="m", platform="tensorflow", new="caffe"),
        ),
        (
            lambda m: [ModelSettings("n", m.base_path, platform="caffe")],
            says("config-platform-unsupported", name="n", platform="caffe"),
        ),
    ],
)
def test_a_refused_reload_changes_nothing(shelf, change, message):
    shelf.serve(1)
    new = change(shelf.settings(policy=Specific(())))
    found = refusal("INVALID_ARGUMENT", shelf.models.configure, new, PATIENCE)
    assert re.fullmatch(message, found)
    shelf.models.poll()
    assert shelf.now() == {1: AVAILABLE}
    assert shelf.models.names == ["m"]


def test_a_reload_to_what_is_served_already_does_nothing(shelf):
    shelf.serve(1)
    before = list(shelf.states)
    shelf.models.configure([shelf.settings()], PATIENCE)
    assert shelf.states == before


def test_no_models_are_ready_too(shelf):
    shelf.models.configure([], PATIENCE)
    assert shelf.models.ready


def test_only_the_last_ended_versions_are_listed(shelf):
    shelf.serve(1)
    for number in range(2, MAX_ENDED + 12):
        shelf.remove(number - 1)
        shelf.add(number)
        shelf.models.poll()
        shelf.wait(lambda number=number: shelf.now() == {number: AVAILABLE})
    ended = shelf.models.status("m")[:-1]
    assert [each.version for each in ended] == list(range(11, MAX_ENDED + 11))


def test_closing_waits_for_calls_and_refuses_new_ones(shelf):
    shelf.serve(1)
    done = []
    closer = threading.Thread(target=lambda: done.append(shelf.models.close(PATIENCE)))
    with shelf.using("m") as loaded:
        closer.start()
        shelf.wait(lambda: shelf.history(1)[-1] == UNLOADING)
        assert shows(refusal("UNAVAILABLE", use, shelf, "m"), "server-shuts-down")
        refusal("UNAVAILABLE", shelf.models.configure, [], PATIENCE)
        assert not loaded.closed.is_set()
        assert not shelf.models.ready
    closer.join(PATIENCE)
    assert done == [True]
    assert loaded.closed.is_set()


def test_closing_gives_up_on_a_call_that_does_not_end(shelf):
    shelf.serve(1)
    with shelf.using("m") as loaded:
        assert not shelf.models.close(0)
        assert not loaded.closed.is_set()


def test_closing_ends_a_wait_for_a_reload_and_closes_what_is_being_loaded(shelf):
    gate = shelf.hold(1)
    shelf.add(1)
    said = []

    def reload():
        said.append(refusal("UNAVAILABLE", shelf.models.configure, [shelf.settings()], PATIENCE))

    waiting = threading.Thread(target=reload)
    waiting.start()
    assert shelf.begun["m", 1].wait(PATIENCE)
    assert not shelf.models.close(0)
    waiting.join(PATIENCE)
    assert [shows(each, "server-shuts-down") for each in said] == [True]
    gate.set()
    shelf.wait(lambda: shelf.history(1)[-1] == END)
    assert shelf.objects[0].closed.is_set()


def test_changes_are_told_in_their_order_whoever_tells_them():
    told, later = [], threading.Event()

    def listen(name, status):
        if status.version == 1:
            later.wait(0.2)  # time enough for the other thread to overtake, if it could
        told.append(status.version)
        later.set()

    changes = Changes(listen)
    changes.note("m", VersionStatus(1, START))
    first = threading.Thread(target=changes.tell)
    first.start()
    changes.note("m", VersionStatus(2, START))
    changes.tell()
    assert told == [1, 2], "what was noted before has been heard"
    first.join(PATIENCE)


def test_a_listener_that_fails_stops_nothing(shelf):
    def fail(name, status):
        raise ValueError(status)

    shelf.note = fail
    shelf.add(1)
    shelf.models.configure([shelf.settings()], PATIENCE)
    assert use(shelf, "m").version == 1


def test_models_that_come_and_go_are_forgotten_in_the_end(shelf):
    for number in range(MAX_ENDED + 20):
        name = f"m{number}"
        shelf.add(1, name=name)
        shelf.models.configure([shelf.settings(name)], PATIENCE)
        assert shelf.models.has(name)
        shelf.models.configure([], PATIENCE)
        assert not shelf.models.has(name)
    shelf.wait(lambda: all(shelf.objects[n].closed.is_set() for n in range(MAX_ENDED + 20)))
    shelf.models.configure([], PATIENCE)
    assert list(shelf.models._models) == [f"m{number}" for number in range(20, MAX_ENDED + 20)]
