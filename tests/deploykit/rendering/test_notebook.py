"""Progress in the cells of a notebook: where it shows, and where it does not."""

import subprocess
import sys
import types

import pytest

from deploykit.rendering import notebook, progress
from deploykit.rendering.notebook import Cell
from deploykit.rendering.progress import in_kernel, unseen, working
from tests.support import Containing, because, shows
from tests.waiting import until


class Display:
    """What a notebook shows: each call is a new output, and its handle changes it."""

    def __init__(self):
        self.outputs = []

    def __call__(self, data, raw, display_id):
        assert raw
        assert display_id
        self.outputs.append([data["text/plain"]])
        lines = self.outputs[-1]
        return types.SimpleNamespace(update=lambda data, raw: lines.append(data["text/plain"]))


@pytest.fixture
def display(monkeypatch):
    """A kernel that is made up."""
    shown, module = Display(), types.ModuleType("IPython")
    module.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    module.display = types.ModuleType("IPython.display")
    module.display.display = shown
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", module.display)
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setattr(progress, "_shown", progress._Shown(progress.Watcher(), lambda: 7.0))
    return shown


def showing(monkeypatch):
    """Let the line show at once, and be changed as often as can be."""
    monkeypatch.setattr(notebook, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(notebook, "EVERY_SECONDS", 0.001)


def wait_for(display, text):
    until(lambda: any(text in line for output in display.outputs for line in output))


def test_a_cell_shows_one_line_that_is_changed_in_place(display, monkeypatch):
    showing(monkeypatch)
    with working("ship", "check", "calibrate", expected={"calibrate": 100}) as work:
        wait_for(display, "ship  0:00 ")
        work.begin("calibrate")
        wait_for(display, "[2/2] calibrate  0:00 ")
    (lines,) = display.outputs
    assert lines[-1] == because("done-in", work="ship", time="0:00")


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_what_stops_is_said_to_have_stopped(display, monkeypatch, error):
    showing(monkeypatch)

    def fail():
        with working("ship", "check") as work:
            work.begin("check")("values", 2)
            wait_for(display, "check: values")
            raise error

    with pytest.raises(error):
        fail()
    (lines,) = display.outputs
    work = Containing("[1/1] check: values")
    assert shows(lines[-1], "stopped-after", work=work, time="0:00")


def test_what_ends_soon_shows_nothing(display):
    with working("inspect"):
        pass
    assert display.outputs == []


def test_an_interrupt_while_work_begins_does_not_hide_later_work(display, monkeypatch):
    def interrupted(self, work):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Cell, "began", interrupted)
        with pytest.raises(KeyboardInterrupt), working("ship"):
            pass
    showing(monkeypatch)
    with working("verify"):
        wait_for(display, "verify")


def test_a_watcher_that_was_set_goes_before_the_cell(display):
    watcher = unseen("nobody").watcher
    seen = types.SimpleNamespace(
        began=watcher.began, stepped=watcher.stepped, moved=watcher.moved, ended=watcher.ended
    )
    progress.watch_with(seen)
    with working("ship") as work:
        assert work.watcher is seen


@pytest.mark.parametrize("there", ["import sys", "import IPython", "import ipykernel"])
def test_elsewhere_nothing_is_imported_or_shown(there):
    code = (
        f"{there}; import sys; before = 'IPython' in sys.modules\n"
        "from deploykit.rendering import notebook, progress\n"
        "notebook.QUIET_SECONDS = 0.0\n"
        "with progress.working('ship') as work: pass\n"
        "assert type(work.watcher) is progress.Watcher, work.watcher\n"
        "assert ('IPython' in sys.modules) == before\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_this_is_no_kernel():
    assert not in_kernel()
