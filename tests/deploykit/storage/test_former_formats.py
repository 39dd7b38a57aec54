"""Files that deploykit 0.1 wrote are read: `tests/data/formats/0.1` holds one of each kind."""

import json
import re
from pathlib import Path

import pytest

import deploykit
from deploykit.batch_inference.reading.data_parts import BadRow
from deploykit.batch_inference.results_index import PartsJournal, read_index
from deploykit.benchmarking.comparing import History
from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.speed_verdict import RULE
from deploykit.benchmarking.tuning.search import SettingsTrial
from deploykit.data.preprocessing import load_preprocessing
from deploykit.exporting.export import exported_from
from deploykit.importers.metadata_file import load_sidecar
from deploykit.records.examples import Feature
from deploykit.records.index import load_index
from deploykit.shipping.stage_cache import StageCache
from deploykit.storage.resume_file import State
from deploykit.storage.ship_report import ship_report
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.engines.engine_folder import read
from deploykit.transforms.int8.ranges import load_ranges
from deploykit.transforms.untrusted.files import sha256_of
from tests.support import Containing, because, raises

FILES = Path(__file__).parents[2] / "data" / "formats" / "0.1"


def written(name):
    return json.loads((FILES / name).read_text())


def test_a_result_of_a_benchmark():
    before = written("benchmark.json")
    now = deploykit.load_result(FILES / "benchmark.json").document()
    today = {"left_out": RULE}  # the rule in the words of today
    assert {key: before[key] for key in now} | today == now


def test_a_scenario_is_ignored_and_its_result_not_compared(tmp_path, caplog):
    path = FILES / "scenario.json"
    result = deploykit.load_result(path)
    assert because("scenario-ignored", file=path) in caplog.text
    (before,), (now,) = written(path.name)["measurements"], result.document()["measurements"]
    assert before | {"summary": now["summary"], "scenario": True} == now
    assert now["summary"]["verdict"] == Containing("unstable", "p90")
    with raises(GraphError, "no-measurement-pairs", hint=Containing("0.1")):
        deploykit.compare(result, path)
    page = deploykit.report([path], tmp_path / "page.html")
    assert because("scenario-on-page") in page.html


@pytest.mark.sampled
def test_a_profile_with_a_roofline_is_shown_without_it(tmp_path):
    (known,) = written("profile.json")["measurements"]
    (measured,) = deploykit.load_result(FILES / "profile.json").measurements
    html = deploykit.report([FILES / "profile.json"], tmp_path / "page.html").html
    assert measured.name in html
    assert all(op["op"] in html for op in known["profile"]["ops"])
    assert known["profile"]["peak"]
    assert html.count("roofline") == 1  # the sentence that it is not shown
    assert not re.search("(of|relative to) the peak|bound by", html, re.IGNORECASE)


def test_a_history_of_benchmarks():
    [result] = History.read(FILES / "history.json").documents
    assert result["kind"] == "benchmark"
    assert History.read(FILES / "history.json").like(
        deploykit.load_result(FILES / "benchmark.json")
    )


@pytest.mark.sampled
def test_a_load_test(tmp_path):
    page = deploykit.report([FILES / "load-test.json"], tmp_path / "page.html")
    assert page.kinds == ("load-test",)
    loads = written("load-test.json")["loads"]
    assert all(f"{load['throughput']:.3g}"[:3] in page.html for load in loads)


def test_what_tune_recommends():
    assert document(deploykit.load_tuned(FILES / "tuned.json")) == written("tuned.json")["settings"]


def test_trials_of_an_interrupted_search():
    state = State(FILES / "tuning.state.json", "tuning", {"model": "ab"})
    good, failed = map(SettingsTrial.of, trials := state.stored["trials"])
    assert (good.settings, good.figures.more) == (RunConfig(batch=2, threads=(2, 1)), (2.5,))
    assert (failed.failure, failed.figures) == (trials[1]["failure"], None)


def test_ranges():
    before, now = written("model.ranges.json"), load_ranges(FILES / "model.ranges.json")
    assert [*now.tensors] == [*before["tensors"]]
    assert now.text() == (FILES / "model.ranges.json").read_text()


def test_what_is_known_of_a_graph():
    model = FILES / "model.pb"
    inputs, outputs, known = load_sidecar(model, sha256_of(model))
    assert (inputs, outputs) == (["x"], ["out"])
    assert document(known)["photos"] == written("model.pb.json")["photos"]


def test_preprocessing():
    found = load_preprocessing(FILES / "preprocessing.json")
    assert document(found) == written("preprocessing.json")


def test_records():
    assert document(load_index(FILES / "records")) == written("records/data.index.json")


def test_an_index_of_results():
    made_of, parts, index = read_index(FILES / "inferred" / "x.index.json")
    assert (made_of["parts"], len(parts)) == (1, 1)
    assert index == written("inferred/x.index.json")


def test_a_journal_of_an_interrupted_run():
    made_of, parts = PartsJournal(FILES / "data.parts.jsonl").read()
    assert made_of["parts"] == 3
    assert parts[0].bad == (BadRow("a.jpg", 3, "damaged"),)
    assert parts[0].columns == {"row": Feature("int64"), "y": Feature("float32", (None, 3))}


def test_an_exported_version():
    found = read(FILES / "version")
    assert (found.use.engine, [*found.signatures]) == ("openvino", ["serving_default"])
    assert exported_from(FILES / "version")


def test_a_shipment():
    assert ship_report(FILES / "net.ship").name == "net"
    for stage in ("check", "optimize", "verify", "tune"):
        assert StageCache(FILES / "net.ship").seconds(stage) is not None
    before = written("net.ship/.stages/tune.json")
    found = StageCache(FILES / "net.ship").lookup("tune", before["key"])
    assert found.outcome.document == before["outcome"]["document"]
