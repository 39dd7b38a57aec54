"""A speedup is what requests gain, and says where it stands that the machine was loaded."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest

from deploykit.benchmarking.system_load import Conditions
from deploykit.benchmarking.tables import tables
from deploykit.client.server_load import Load
from deploykit.rendering.formatters.shipped import lines
from deploykit.rendering.tables import drawn
from deploykit.reporting.page.page import html_of
from deploykit.shipping import request_speed
from deploykit.shipping.figures import figures, of_speed, verdict
from deploykit.shipping.request_speed import summed_up
from deploykit.shipping.ship_folder import _readme
from deploykit.shipping.ship_options import ShipOptions
from deploykit.shipping.shipment import AS_IT_CAME, FROZEN, OPTIMIZED, Shipment
from deploykit.shipping.shipped import FOLDER, Outcome, StageResult
from deploykit.shipping.stages.speed import less_loaded
from deploykit.storage.ship_report import MODEL
from deploykit.system.cpu_usage import Activity
from tests.deploykit.benchmarking.made_up_results import measurement, result
from tests.support import Containing, because, shows

LOAD = Load(1, 0.0, 1.0, {"OK": 9}, 9.0, {}, {}, 0.1, 0, False)
MARK = "measured on a loaded machine: other processes used 1.2 of 2 cores"


def conditions(foreign):
    activity = Activity(10, busy=0.8 + foreign, idle=1.2 - foreign, iowait=0, steal=0, waiting=0)
    return Conditions(activity, own_cores=0.8, reference_ms=1.0)


def benchmarked(foreign=0.0):
    """Return the result of a benchmark stage: the model alone is 3 times as fast."""
    ends = measurement(AS_IT_CAME, 6.0), measurement(OPTIMIZED, 2.0, seed=1)
    return result(*ends, conditions=conditions(foreign))


def requests(busy=""):
    """Return what requests came to: 1.2 times as fast."""
    scatter = np.exp(0.01 * np.random.default_rng(0).standard_normal((8, 2)))
    rounds = [tuple(each) for each in (np.array([1.2, 1.0]) * scatter).tolist()]
    return {"signature": "serving_default", **summed_up(rounds, busy)}


def shipment_in(folder, **options):
    how = ShipOptions(**options)
    return Shipment(source=None, how=how, name="net", output=folder, folder=folder)


@pytest.fixture
def shipped(tmp_path):
    (tmp_path / FOLDER).mkdir()
    for name in (FROZEN, MODEL):
        (tmp_path / name).write_bytes(b"graph")

    def made(foreign=0.0, served=None):
        outcomes = {
            "benchmark": Outcome(facts=of_speed(benchmarked(foreign), OPTIMIZED)),
            "serve": Outcome({"requests": served or {"why": "no time"}}),
        }
        shipment = shipment_in(tmp_path)
        for name, outcome in outcomes.items():
            shipment.results[name] = StageResult(name, outcome, 1.0)
        found = figures(shipment)
        return {
            "name": "net", "precision": "float32", "reason": "int8 is slower", "figures": found,
            "verdict": verdict(shipment, found), "stages": [], "commands": [
                {"what": "serve it", "command": "deploykit serve net.ship"}],
        }  # fmt: skip

    return made


def everywhere(document):
    """Return what stands next to the speedup: in the terminal, on the first screen, in README."""
    terminal = "\n".join(drawn(lines(document), None))
    page = html_of([{"kind": "ship", "format": 1, **document}])
    (row,) = re.findall(r'<tr role="row">\n<th[^>]*>latency.*?</tr>', page, re.S)
    return terminal, row, document["verdict"], _readme(document)


def test_the_first_figure_is_what_requests_gain(shipped):
    document = shipped(served=requests())
    figure = document["figures"]["p50"]
    assert figure["ratio"]["value"] == pytest.approx(1.2, rel=0.03)
    assert figure["title"] == because("request-latency")
    gain = {"verdict": Containing("faster: 1.2"), "alone": Containing("3.0")}
    assert shows(figure["verdict"], "requests-gain", signature="serving_default", **gain)
    assert "1.2" in document["verdict"]
    alone = shipped()["figures"]["p50"]
    assert alone["ratio"]["value"] == pytest.approx(3, rel=0.03)
    assert because("speed-of-request") in document["verdict"]
    assert because("speed-of-model") in shipped()["verdict"]


@pytest.mark.parametrize("foreign", [0.0, 1.2])
@pytest.mark.parametrize("is_asked", [False, True])
def test_a_loaded_machine_is_marked_where_the_speedup_stands(shipped, foreign, is_asked):
    busy = MARK if foreign else ""
    document = shipped(foreign, requests(busy) if is_asked else None)
    for text in everywhere(document):
        assert (MARK in text) == bool(foreign)
    assert ("loaded machine\n" in everywhere(document)[0]) == bool(foreign)


def test_a_loaded_machine_is_marked_in_the_tables_of_a_benchmark():
    for foreign in (0.0, 1.2):
        text = "\n".join(map(str, drawn(tables(benchmarked(foreign)), None)))
        assert text.count(MARK) == (2 if foreign else 0), "next to the ratio, and below"


@pytest.mark.parametrize(
    ("loads", "has_time", "expected"),
    [
        ([0.0], True, (0.0, 1)),
        ([1.2], False, (1.2, 1)),
        ([1.2, 0.0], True, (0.0, 2)),
        ([1.0, 1.2], True, (1.0, 2)),
        ([1.2, 1.0], True, (1.0, 2)),
    ],
)
def test_it_is_measured_again_on_a_loaded_machine(loads, has_time, expected):
    asked = [benchmarked(each) for each in loads]
    left = iter(asked)
    found = less_loaded(lambda: next(left), lambda: has_time)
    assert found is asked[loads.index(expected[0])]
    assert len(asked) - len([*left]) == expected[1]


class Server:
    """A client of a server that answers within so many milliseconds."""

    def __init__(self, name, ms) -> None:
        self._ms = itertools.cycle([0.99 * ms, 1.01 * ms])
        self.name = name

    def measure(self, step):
        assert (step.callers, step.seconds) == (1, 0.5)
        return replace(LOAD, latency_ms={"p50": next(self._ms)})


def test_both_servers_are_asked_in_turn(monkeypatch):
    monkeypatch.setattr(request_speed.Watch, "conditions", lambda self, own: conditions(1.2))
    found = request_speed._measured(Server("before", 3.0), Server("after", 2.0), 0.5)
    assert found["ratio"]["value"] == pytest.approx(1.5, rel=0.01)
    assert found["ratio"]["low"] <= 1.5 <= found["ratio"]["high"]
    assert found["loaded"] == MARK
    assert found["before_ms"]["value"] == pytest.approx(3, rel=0.01)


def test_with_next_to_no_budget_no_request_is_measured():
    shipment = shipment_in(None, budget=0.0)
    assert "--budget" in request_speed.request_speed(shipment, "", {})["why"]
