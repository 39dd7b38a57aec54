"""Versions on disk and what they load as: plain objects that know whether they were closed."""

import threading
from contextlib import contextmanager
from pathlib import Path

from deploykit.serving.lifecycle.model_config import ModelSettings
from deploykit.serving.lifecycle.models import Models
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.versions import AVAILABLE, END

PATIENCE = 10  # seconds after which a test gives up; none of them passes by waiting so long


class Loaded:
    """What a version loads as; it counts how often it is closed, and how often while in use."""

    def __init__(self, name, version, folder):
        self.name, self.version, self.folder = name, version, folder
        self.uses = 0
        self.closes = []
        self.closed = threading.Event()

    def close(self):
        self.closes.append(self.uses)
        self.closed.set()


class Shelf:
    """A folder of models, the states that their versions went through, and switches for loading."""

    def __init__(self, folder: Path, **options):
        self.folder = folder
        self.broken = set()
        self.gates = {}
        self.begun = {}
        self.loads = []
        self.objects = []
        self.states = []
        self.news = threading.Condition()
        options = {"poll_seconds": 0, "retries": 0, "retry_seconds": 0} | options
        self.models = Models(self.load, on_change=self.heard, **options)

    def load(self, name, version, folder):
        self.loads.append((name, version))
        if (name, version) in self.gates:
            self.begun[name, version].set()
            assert self.gates[name, version].wait(PATIENCE)
        if (name, version) in self.broken:
            raise ServingError("DATA_LOSS", f"version {version} is broken")
        self.objects.append(Loaded(name, version, folder))
        return self.objects[-1]

    def heard(self, name, status):
        self.note(name, status)

    def note(self, name, status):
        with self.news:
            self.states.append((name, status.version, status.state, status.code))
            self.news.notify_all()

    def add(self, *versions, name="m"):
        for version in versions:
            (self.folder / name / str(version)).mkdir(parents=True, exist_ok=True)

    def remove(self, *versions, name="m"):
        for version in versions:
            (self.folder / name / str(version)).rmdir()

    def hold(self, version, name="m"):
        """Let loading a version stop until the event that is returned is set."""
        self.begun[name, version] = threading.Event()
        self.gates[name, version] = threading.Event()
        return self.gates[name, version]

    def settings(self, name="m", **fields):
        (self.folder / name).mkdir(exist_ok=True)
        return ModelSettings(name, self.folder / name, **fields)

    def serve(self, *versions, **fields):
        """Put versions of the model `m` on disk, configure it, and wait until it is served."""
        self.add(*versions)
        self.models.configure([self.settings(**fields)], PATIENCE)
        self.wait(lambda: self.now("m") == dict.fromkeys(versions, AVAILABLE))

    def now(self, name="m"):
        """Return the states of the versions that have not ended."""
        try:
            statuses = self.models.status(name)
        except ServingError:
            return {}
        return {each.version: each.state for each in statuses if each.state != END}

    def history(self, version, name="m"):
        return [state for *which, state, _ in self.states if which == [name, version]]

    @contextmanager
    def using(self, *which, **named):
        """Use a version and let it know."""
        with self.models.using(*which, **named) as loaded:
            loaded.uses += 1
            try:
                yield loaded
            finally:
                loaded.uses -= 1

    def close(self):
        """Let go of everything: each object must be closed, once, and while nobody used it."""
        for gate in self.gates.values():
            gate.set()
        assert self.models.close(PATIENCE), "something is still in use"
        assert all(each.closes == [0] for each in self.objects)

    def wait(self, condition):
        with self.news:
            assert self.news.wait_for(condition, PATIENCE), (self.states, self.now())
