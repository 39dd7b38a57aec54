"""What a command prints as JSON is what its function returns, for the same options.

Processes that measure are made up: each call takes 2 ms, so the figures are the same each time.
"""

import json

import numpy as np
import pytest

import deploykit as api
from deploykit.data.input_speed import input_benchmark, input_runner
from deploykit.data.input_speed.input_runner import Stretch
from deploykit.transforms.common.errors import FileError, GraphError, VerificationError
from tests.deploykit.benchmarking import made_up
from tests.deploykit.benchmarking.made_up_process import MadeUpProcess, take_made_up_processes
from tests.deploykit.benchmarking.nets import dense, written
from tests.deploykit.data import made_up as data_made_up
from tests.support import assert_golden, raises, refusal

REPORTED = ("schema", "command", "inputs", "outputs", "input_file", "output_file", "bytes_in",
            "bytes_out", "nodes_in", "nodes_out", "seconds", "fed")  # fmt: skip
CLOCKED = ("started", "machine", "conditions")


class MadeUpInput(MadeUpProcess):
    """A process that runs a style of input."""

    def ask(self, method, *arguments):
        return None if method == "decoding" else Stretch(40, 10, 0.5, 0.25)


@pytest.fixture
def processes(monkeypatch):
    take_made_up_processes(monkeypatch)
    monkeypatch.setattr(input_runner, "Worker", MadeUpInput)
    monkeypatch.setattr(input_benchmark, "wait_for_idle", lambda processes, longest: None)


@pytest.fixture
def net(tmp_path):
    return written(dense(), tmp_path / "net.pb")


def plain(document):
    return json.loads(json.dumps(document))


def without(document, *names):
    """Return a document without what a clock or the command adds to it."""
    return {k: v for k, v in plain(document).items() if k not in (*REPORTED, *CLOCKED, *names)}


def told(deploykit, *words):
    found = deploykit(*words, "--json")
    assert found.status == 0, found.stderr
    return found.document


def settled(measurement):
    """Return a measurement without what the operating system says of this process."""
    facts = {k: v for k, v in measurement["facts"].items() if k not in ("cpu_use", "devices")}
    return measurement | {"facts": facts}


def test_benchmark(deploykit, processes, net, tmp_path):
    np.savez(tmp_path / "data.npz", x=np.ones((9, 8), np.float32))
    said = told(
        deploykit, "benchmark", net, "--batch=1,3", "--threads=2x1", "--onednn=off",
        "--data", tmp_path / "data.npz", "--runs=40",
    )  # fmt: skip
    arrays = {"x": np.ones((9, 8), np.float32)}
    for data in (tmp_path / "data.npz", arrays, api.Dataset.of(api.load_graph(net), arrays)):
        found = api.benchmark(
            net, batch=[1, 3], threads=(2, 1), onednn=False, data=data, runs=40
        ).document()
        assert len(found["measurements"]) == 2
        assert [*map(settled, plain(found)["measurements"])] == [
            *map(settled, said["measurements"])
        ]
        assert without(found, "measurements") == without(said, "measurements")
    assert said["bytes_in"] == net.stat().st_size


def test_benchmark_of_several(deploykit, processes, net, tmp_path):
    other = written(dense(), tmp_path / "other.pb")
    said = told(deploykit, "benchmark", net, other, "--outputs=y", "--seconds=0.5")
    for models in ([net, other], {str(net): api.load_graph(net), str(other): other}):
        found = api.benchmark(models, outputs=["y"], seconds=0.5)
        document = plain(found.document())
        assert [*map(settled, document["measurements"])] == [*map(settled, said["measurements"])]
        assert {each.graph.outputs for each in found.models.values()} == {("y",)}
    assert [each["name"] for each in said["measurements"]] == ["net.pb", "other.pb"]


def test_models_that_are_alike_have_names_of_their_own(processes, net):
    found = api.benchmark([dense(), dense(), net], runs=1, rounds=1)
    assert [each.name for each in found.measurements] == ["a graph", "a graph (2)", "net.pb"]
    assert len({each.sha256 for each in found.measurements}) == 1


def test_benchmark_with_settings_of_any_form(processes, net):
    chosen = api.RunConfig(batch=2, threads=(1, 1))
    for settings in (chosen, [chosen], api.RunConfigGrid(batch=(2,), threads=((1, 1),))):
        (found,) = api.benchmark(net, settings, runs=1).measurements
        assert (found.settings, found.samples) == (chosen, 2)
    several = api.benchmark(net, chosen, batch=[1, 4], runs=1).measurements
    assert [each.settings.threads for each in several] == [(1, 1)] * 2
    assert [each.samples for each in several] == [1, 4]


def test_benchmark_with_settings_of_each_model(processes, net):
    one, two = api.RunConfig(batch=1), api.RunConfig(batch=2)
    models = {"a": net, "b": dense()}
    found = api.benchmark(models, {"a": [one], "b": [one, two]}, runs=1).measurements
    assert [(each.model, each.settings) for each in found] == [("a", one), ("b", one), ("b", two)]
    with raises(GraphError, "settings-models-count", settings=["a"], models=["a", "b"]):
        api.benchmark(models, {"a": [one]}, runs=1)


@pytest.fixture
def wide(tmp_path):
    return written(dense(shape=(-1, data_made_up.WIDTH)), tmp_path / "wide.pb")


def test_benchmark_behind_files(deploykit, processes, wide, tmp_path):
    data = data_made_up.write_csv(tmp_path / "csv")
    steps = {"format": 1, "columns": {"x": [0, data_made_up.WIDTH], "id": data_made_up.WIDTH}}
    (tmp_path / "steps.json").write_text(json.dumps(steps))
    said = told(
        deploykit, "benchmark", wide, "--data", data.path, "--input=all", "--batch=4",
        "--shuffle", "--simulated-compute-ms=5", "--preprocess", tmp_path / "steps.json",
    )  # fmt: skip
    found = api.benchmark(
        wide,
        data=data.path,
        input="all",
        batch=4,
        shuffle=True,
        simulated_compute_ms=5,
        preprocess=steps,
    )
    assert without(found.document()) == without(said)
    assert [each.style for each in found.styles] == ["feed", "queue", "tfdata"]


WRONG = [
    {"input": "queue"}, {"shuffle": True}, {"shuffle": True, "data": {"x": np.ones((2, 8))}},
    *({"data": "DIR", **more} for more in (
        {"runs": 3}, {"profile": True}, {"shapes": {"x": (1, 8)}}, {"batch": [1, 2]},
        {"input": "disk"}, {"service_address": "a:1"}, {"input": "feed", "cache": "memory"},
        {"on_error": "ignore"},
    )),
]  # fmt: skip


@pytest.mark.golden("refusals/benchmark_files")
def test_what_contradicts_itself_is_said_before_anything_runs(wide, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data_made_up.write_csv(tmp_path / "DIR")
    said = (refusal(api.benchmark, wide, **options) for options in WRONG)
    assert_golden(*(each.replace(f"{tmp_path}/", "") for each in said))


@pytest.mark.slow
def test_tune(deploykit, processes, net, tmp_path):
    np.savez(tmp_path / "data.npz", x=np.ones((9, 8), np.float32))
    said = told(deploykit, "tune", net, "--batch=1,4", "--goal=throughput",
                "--data", tmp_path / "data.npz", "-o", tmp_path / "said.json")  # fmt: skip
    data = api.Dataset.of(api.load_graph(net), {"x": np.ones((9, 8), np.float32)})
    found = api.tune(
        net, batch=[1, 4], goal="throughput", data=data, output=tmp_path / "found.json"
    )
    documents = [plain(each) for each in (said, found.document())]
    for each in documents:
        assert len(each["trials"]) > 5
        for trial in each["trials"]:
            trial["seconds"] = 0
    assert without(documents[0]) == without(documents[1])
    written_ones = [json.loads((tmp_path / f"{n}.json").read_text()) for n in ("said", "found")]
    assert written_ones[1] == plain(found.document())
    assert written_ones[0].keys() == written_ones[1].keys()
    assert api.load_tuned(tmp_path / "found.json") == found.settings
    assert [each.name for each in tmp_path.iterdir() if "state" in each.name] == []


def test_tune_goes_on_where_it_was_interrupted(processes, net, tmp_path, monkeypatch, caplog):
    from deploykit.benchmarking.tuning import tuning

    def interrupted(*arguments, **more):
        raise KeyboardInterrupt

    output = tmp_path / "tuned.json"
    with monkeypatch.context() as patch:
        patch.setattr(tuning, "measure", interrupted)
        with pytest.raises(KeyboardInterrupt):
            api.tune(net, batch=2, output=output)
    state = tmp_path / "tuned.json.state"
    earlier = json.loads(state.read_text())["found"]["trials"]
    found = api.tune(net, batch=2, output=output)
    assert not state.exists()
    assert plain(found.document())["trials"][: len(earlier)] == earlier
    with raises(FileError, "exists", what="the file"):
        api.tune(net, batch=2, output=output)


def test_compare(deploykit, tmp_path):
    results = [made_up.result(made_up.measurement(made_up.times(each))) for each in (2, 1)]
    for name, each in zip("ab", results, strict=True):
        (tmp_path / name).write_text(json.dumps(each.document()))
    said = told(deploykit, "compare", tmp_path / "a", tmp_path / "b", "--confidence=0.9")
    for a, b in ((tmp_path / "a", tmp_path / "b"), results):
        found = api.compare(a, b, confidence=0.9)
        assert without(found.document()) == without(said)
    assert said["confidence"] == 0.9
    found.check(1.5)
    with raises(VerificationError, "slower-than-allowed", name="b", baseline="a"):
        found.check(2.5)


def test_doctor(deploykit):
    said, found = told(deploykit, "doctor"), api.doctor()
    assert without(found.document()) == without(said)
    assert found.refusal == said["gpu"]["refusal"]


def test_write_input(deploykit, net, tmp_path):
    np.savez(tmp_path / "data.npz", x=np.ones((9, 8), np.float32))
    words = ("input", "write", tmp_path / "data.npz", "--model", net, "--batch=4")
    said = told(deploykit, *words)
    found = api.write_input(tmp_path / "data.npz", model=net, batch=4, output=tmp_path / "found.py")
    assert without(found.document()) == without(said)
    assert (tmp_path / "found.py").read_text() == found.text
    assert told(deploykit, *words, "-o", tmp_path / "said.py")["bytes_out"] == len(found.text)
    assert (tmp_path / "said.py").read_text() == found.text
    with raises(FileError, "exists", what="the file"):
        api.write_input(tmp_path / "data.npz", output=tmp_path / "found.py")


def test_records(deploykit, tmp_path):
    np.savez(tmp_path / "data.npz", x=np.arange(60).reshape(20, 3), label=np.arange(20))
    words = ("records", tmp_path / "data.npz", tmp_path / "said", "--compression=gzip")
    said = told(deploykit, *words, "--name=numbers", "--shard-size=0.0001", "--processes=1")
    found = api.convert_records(
        tmp_path / "data.npz", tmp_path / "found",
        compression="gzip", name="numbers", shard_size=0.0001, processes=1,
    )  # fmt: skip
    assert without(found.document()) == without(said)
    assert said["bytes_out"] == found.index.bytes
    assert found.index.records == 20
    files = [{p.name: p.read_bytes() for p in (tmp_path / n).iterdir()} for n in ("said", "found")]
    assert files[0] == files[1]

    folder = tmp_path / "found"
    assert without(api.inspect_records(folder).document()) == without(
        told(deploykit, "records", "inspect", folder)
    )
    checked = api.verify_records(folder, processes=1)
    assert without(checked.document()) == without(told(deploykit, "records", "verify", folder))
    assert checked.passed
    checked.check()
    shard = folder / found.index.shards[0].file
    shard.write_bytes(shard.read_bytes()[:-9])
    broken = api.verify_records(folder, processes=1)
    assert not broken.passed
    with pytest.raises(VerificationError, match=shard.name):
        broken.check()


@pytest.mark.parametrize(
    "options", [{"kind": "image"}, {"compression": "zip"}, {"on_error": "ignore"}]
)
def test_wrong_words_for_records_are_refused(tmp_path, options):
    with raises(GraphError, "not-one-of"):
        api.convert_records(tmp_path, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
