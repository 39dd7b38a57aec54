"""The gate on real models: what is planted fails it, the same model does not."""

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import deploykit as api
from deploykit.gating.limits import GateLimits
from deploykit.gating.measuring import BASELINE, CANDIDATE, GateRun, settings_of
from deploykit.gating.verdict import FAIL, INCONCLUSIVE, NO_LIMIT, PASS
from deploykit.importers.metadata_file import About
from deploykit.importers.open_model import open_model
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import FileError, GraphError
from tests import pairwise
from tests.deploykit.gating.nets import COUNT, classifier, samples, with_sum
from tests.support import assert_error, because, raises, says, shows

OFF = {"max_latency_increase": None, "max_memory_increase": None, "max_size_increase": None}
BRIEF = 2.0


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", **samples())
    api.save_graph(classifier(), "old.pb")
    return tmp_path


def verdicts(found):
    return {check["name"]: check["verdict"] for check in found["checks"]}


@pytest.mark.slow
@pytest.mark.alone
def test_a_large_and_slow_candidate_fails():
    found = api.gate(classifier(2), classifier(6, width=1536), samples(), budget=60)
    got = verdicts(found.document())
    assert found.verdict == FAIL
    assert (got["size"], got["latency p50"], got["memory peak"]) == (FAIL, FAIL, FAIL)
    assert (got["signatures"], got["accuracy (top1)"]) == (PASS, PASS)
    assert {got[name] for name in ("latency p99", "throughput", "start-up")} == {NO_LIMIT}
    slower = next(check for check in found.checks if check.name == "latency p50")
    assert 0.05 < slower.interval[0] < slower.change < slower.interval[1]


@pytest.mark.slow
@pytest.mark.alone
def test_the_same_model_never_fails():
    found = api.gate(classifier(), classifier(), samples(), budget=20)
    assert found.verdict != FAIL
    got = verdicts(found.document())
    assert got["accuracy (top1)"] == got["size"] == PASS
    assert (found.samples, found.batch) == (COUNT, 1)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "labelled", pairwise.drawn("perturbed_weights_fail", [True, False], 1, quick=1)
)
def test_perturbed_weights_fail(labelled):
    data = samples() if labelled else {"x": samples()["x"]}
    found = api.gate(classifier(), classifier(noise=0.3), data, budget=BRIEF, **OFF)
    failed = [check.name for check in found.with_verdict(FAIL)]
    assert failed == (["accuracy (top1)"] if labelled else ["changed predictions"])
    (check,) = found.with_verdict(FAIL)
    x, labels = data["x"], samples()["labels"]
    graphs = classifier(), classifier(noise=0.3)
    first, second = ((x @ graph["linear"].value).argmax(1) for graph in graphs)
    if labelled:
        assert check.change == pytest.approx((first == labels).mean() - (second == labels).mean())
    else:
        assert check.change == pytest.approx((first != second).mean())
    assert check.interval[0] < check.change < check.interval[1]


@pytest.mark.sampled
def test_few_samples_are_inconclusive():
    few = {name: values[:30] for name, values in samples().items()}
    limits = api.GateLimits(max_accuracy_drop=0.001, min_agreement=0.99, **OFF)
    found = api.gate(classifier(), classifier(), few, limits=limits, budget=BRIEF)
    assert [check.name for check in found.with_verdict(INCONCLUSIVE)] == [
        "accuracy (top1)", "changed predictions"]  # fmt: skip
    assert found.verdict == INCONCLUSIVE
    for check in found.with_verdict(INCONCLUSIVE):
        assert check.detectable > 0.001
        assert because("more-samples") in check.sentence


@pytest.mark.parametrize(("candidate", "names"), [
    (lambda: classifier(name="images"), ("'x' is missing", "'images' is new")),
    (lambda: classifier(classes=5), ("shape [?, 5] instead of [?, 8]",)),
    (lambda: classifier(batch=4), ("shape [4, 16] instead of [?, 16]",)),
    (lambda: classifier(output="logits"), ("output 'scores' is missing",)),
    (lambda: with_sum("scores"), ("shape [] instead of [?, 8]",)),
])  # fmt: skip
def test_an_incompatible_signature_fails_before_anything_runs(candidate, names):
    found = api.gate(classifier(), candidate(), samples(), max_size_increase=None)
    assert found.verdict == FAIL
    assert [check.name for check in found.checks] == ["signatures", "size"]
    assert all(name in found.checks[0].note for name in names)
    assert found.notes


def test_a_scalar_output_may_not_become_a_vector():
    found = api.gate(with_sum("scores"), classifier(), samples(), max_size_increase=None)
    assert shows(found.checks[0].note, "shape-instead", shape="[?, 8]", expected="[]")


@pytest.mark.sampled
def test_a_candidate_may_accept_and_return_more():
    found = api.gate(classifier(batch=4), classifier(), samples(), budget=BRIEF, **OFF)
    assert found.checks[0].verdict == PASS
    assert found.batch == 4


def test_both_models_run_requests_of_the_same_size():
    for pair in ((classifier(batch=4), classifier()), (classifier(), classifier(batch=4))):
        models = dict(zip((BASELINE, CANDIDATE), map(open_model, pair), strict=True))
        run = GateRun(models, samples(), lambda model: samples(), "top1", GateLimits(), None, 1)
        with run._candidate(BASELINE) as first, run._candidate(CANDIDATE) as second:
            assert [len(item.job.batches[0][0]) for item in (first, second)] == [4, 4]


@pytest.mark.sampled
def test_a_changed_signature_can_be_allowed():
    found = api.gate(classifier(), classifier(name="images"), samples(), budget=BRIEF,
                     allow_signature_change=True, **OFF)  # fmt: skip
    assert found.checks[0].verdict == NO_LIMIT
    assert because("input-new", name="images") in found.checks[0].note
    assert found.verdict == PASS


def test_data_that_does_not_fit_is_an_error(folder):
    wide = {"x": np.zeros((10, 5), np.float32), "labels": np.zeros(10, int)}
    with pytest.raises(GraphError, match="x"):
        api.gate("old.pb", "old.pb", wide)
    with pytest.raises(GraphError, match=says("metric-label-beyond", label=99)):
        api.gate("old.pb", "old.pb", samples() | {"labels": np.full(COUNT, 99)}, budget=BRIEF)
    with pytest.raises(FileError, match=r"missing\.pb"):
        api.gate("missing.pb", "old.pb", samples())
    with raises(GraphError, "gate-without-limit"):
        api.gate("old.pb", "old.pb", samples(), max_accuracy_drop=None, **OFF,
                 allow_signature_change=True)  # fmt: skip


def test_exit_statuses_and_files(deploykit, folder):
    line = ("gate", "old.pb", "new.pb", "--data", "data.npz", "--budget", BRIEF,
            "--max-memory-increase=off", "--max-latency-increase=off")  # fmt: skip
    missing = deploykit(*line, "--json")
    assert missing.status == 4
    api.save_graph(classifier(1), "new.pb")
    passed = deploykit(*line, "--max-size-increase=300%", "--junit", "g.xml", "-o", "g.json")
    assert passed.status == 0, passed.stderr
    assert passed.stdout.startswith("pass: new.pb ")
    written = json.loads(Path("g.json").read_text())
    assert (written["kind"], written["verdict"], written["command"]) == ("gate", PASS, "gate")
    assert len(ElementTree.parse("g.xml").findall(".//testcase")) == len(written["checks"])
    again = deploykit(*line, "--junit", "g.xml")
    assert again.status == 4  # the file exists

    Path("deploykit.toml").write_text('[gate]\nmax-size-increase = "0.5%"\n')
    api.save_graph(classifier(3), "new.pb", force=True)
    failed = deploykit(*line, "--json")
    assert failed.status == 5
    assert failed.document["error"]["code"] == "gate-failed"
    assert failed.document["verdict"] == FAIL
    assert verdicts(failed.document)["size"] == FAIL

    np.savez("few.npz", **{name: values[:30] for name, values in samples().items()})
    strict = ("--max-accuracy-drop=0.1%", "--max-latency-increase=off")
    open_ = deploykit("gate", "old.pb", "old.pb", "--data", "few.npz", "--budget", BRIEF, *strict)
    assert open_.status == 7, open_.stderr
    assert shows(open_.stderr, "smallest-detectable")


def test_a_ship_folder_is_measured_with_its_tuned_settings(tmp_path):
    folder = tmp_path / "old.ship"
    folder.mkdir()
    api.save_graph(classifier(), folder / "model.pb")
    (folder / "model.pb.json").write_text(json.dumps(document(About())))
    report = {"format": 1, "kind": "ship", "name": "net", "stages": [{"name": "freeze"}]}
    (folder / "report.json").write_text(json.dumps(report))
    assert list(settings_of(api.open_model(folder))) == [api.RunConfig()]
    settings = {"threads": [2, 1], "batch": 8, "concurrency": 4}
    tuned = {"format": 1, "kind": "tuned", "settings": settings}
    (folder / "tuned.json").write_text(json.dumps(tuned))
    (found,) = settings_of(api.open_model(folder))
    assert (found.threads, found.concurrency) == ((2, 1), 1)


@pytest.mark.parametrize("value", ["5", "x", "-1%", "nan", "2000%"])
def test_a_percentage_is_unmistakable(deploykit, folder, value):
    found = deploykit("gate", "old.pb", "old.pb", "--data", "data.npz",
                      f"--max-latency-increase={value}")  # fmt: skip
    assert found.status == 2
    assert_error(found.error, "option-value", got=value)
