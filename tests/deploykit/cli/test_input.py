"""`deploykit benchmark MODEL --data DIR --input ...` as a user calls it."""

import json

import numpy as np
import pytest

from deploykit.data.input_speed.bottleneck import COMPUTE, INPUT, SHARING, UNDECIDED
from deploykit.data.pipeline import STYLES
from deploykit.records.examples import Feature
from deploykit.storage.arrays import load_data
from tests.deploykit.benchmarking.nets import hanging, written
from tests.deploykit.conftest import FASHION, command_line, refusals
from tests.deploykit.data import made_up
from tests.support import (
    Containing,
    assert_golden,
    because,
    build,
    building,
    random,
    showing,
    shows,
    tf,
)

RATES = ("items_per_second", "compute_only", "input_only", "ceiling", "floor", "share_of_ceiling")


def net():
    x = tf.compat.v1.placeholder(tf.float32, [None, made_up.WIDTH], name="x")
    tf.matmul(x, random(made_up.WIDTH, 2), name="out")


@pytest.fixture
def model(tmp_path):
    return written(build(net, ["x"], ["out"]), tmp_path / "net.pb")


@pytest.fixture(scope="module")
def fashion(tmp_path_factory):
    """The embedded model behind all styles over its own test images."""
    output = tmp_path_factory.mktemp("out") / "result.json"
    found = command_line(
        "benchmark", FASHION / "tf1" / "model.ckpt", "--data", FASHION / "test_1000.npz",
        "--input=all", "--seconds=0.8", "--batch=50", "--json", "-o", output,
    )  # fmt: skip
    return found, output


@pytest.mark.sampled
def test_a_real_model_behind_all_styles(fashion):
    found, output = fashion
    assert found.status == 0, found.stderr
    document = found.document
    assert (document["command"], document["kind"], document["interrupted"]) == (
        "benchmark", "input", False,
    )  # fmt: skip
    assert document["inputs"] == ["images"]
    assert document["batch"] == 50
    assert document["data"]["records"] == len(load_data(FASHION / "test_1000.npz")["labels"])
    assert [each["style"] for each in document["styles"]] == list(STYLES)
    for each in document["styles"]:
        assert len(each["rounds"]) == 5
        assert all(each[name] > 0 for name in RATES)
        assert each["ceiling"] == min(each["compute_only"], each["input_only"])
        assert each["share_of_ceiling"] == pytest.approx(each["items_per_second"] / each["ceiling"])
        assert each["floor"] < each["ceiling"]
        assert each["verdict"] in (INPUT, COMPUTE, SHARING, UNDECIDED)
        assert each["next"]
        assert 0 <= each["cpu"] <= each["cores"] + 0.5
        for turn in each["rounds"]:
            assert turn["both"]["items"] == 50 * turn["both"]["steps"] > 0
    assert json.loads(output.read_text()) == document


@pytest.mark.slow
def test_a_simulated_accelerator_as_a_table(model, tmp_path, deploykit):
    data = made_up.write_csv(tmp_path / "csv")
    steps = tmp_path / "steps.json"
    steps.write_text('{"format": 1, "columns": {"x": [0, 6], "id": 6}}')
    found = deploykit(
        "benchmark", model, "--data", data.path, "--seconds=0.5", "--batch=4", "--env", "A=b c",
        "--simulated-compute-ms=5", "--preprocess", steps,
    )  # fmt: skip
    assert (found.status, found.stderr) == (
        0,
        showing("fed-as-is", what=Containing("float32 6", "csv")),
    )
    for word in ("items/s", "ceiling", "floor", "share", "CPU", *STYLES,
                 "5 ms", "A=b c"):  # fmt: skip
        assert word in found.stdout
    assert any(limit in found.stdout for limit in (INPUT, COMPUTE, UNDECIDED))


@pytest.fixture
def training(tmp_path):
    """The command that measures a training step."""
    with building(["x", "id"]) as graph:
        v1 = tf.compat.v1
        x = v1.placeholder(tf.float32, [None, made_up.WIDTH], name="x")
        y = v1.placeholder(tf.float32, [None], name="id")
        w = v1.get_variable("w", [made_up.WIDTH, 1], use_resource=True)
        loss = tf.reduce_mean((tf.squeeze(x @ w, 1) - y) ** 2)
        v1.train.GradientDescentOptimizer(0.01).minimize(loss, name="train")
        v1.global_variables_initializer().node_def  # noqa: B018  it is in the graph
        tf.group(v1.global_variables_initializer(), name="start")
    path = written(graph, tmp_path / "train.pb")
    data = made_up.write_records(tmp_path / "records")
    return ("benchmark", path, "--data", data.path, "--input=tfdata", "--seconds=0.3",
            "--run-ops=train", "--json")  # fmt: skip


@pytest.mark.sampled
def test_a_training_step_and_one_style(deploykit, training):
    found = deploykit(*training, "--init=start", "--env", "KMP_AFFINITY=none,0", "--threads=1x2")
    assert found.status == 0, found.stderr
    settings = {"threads": [1, 2], "env": {"KMP_AFFINITY": "none,0"}}
    assert found.document["settings"] == settings
    assert found.document["fed"] == {
        "x": showing("fed-as-is", what=Containing("float32 6", "records")),
        "id": Containing("int64 ", "records"),
    }  # fmt: skip
    assert [each["style"] for each in found.document["styles"]] == ["tfdata"]
    found = deploykit(*training)
    assert (found.status, found.printed) == (2, "")
    assert [line.startswith("deploykit: error: ") for line in found.stderr.splitlines()] == [
        False, False, True,
    ]  # fmt: skip


@pytest.mark.sampled
def test_a_training_step_with_variables_of_openmp(deploykit, training):
    found = deploykit(*training, "--init=start", "--kmp-blocktime=0", "--omp-num-threads=1")
    assert found.status == 0, found.stderr
    assert because("openmp-whole") in found.stderr


@pytest.mark.slow
def test_damaged_images_are_counted(tmp_path, deploykit):
    with building(["image"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 8, 8, 3], name="image")
        tf.reduce_mean(x, [1, 2, 3], name="out")
    path = written(graph, tmp_path / "net.pb")
    data = made_up.write_images(tmp_path / "images")
    damaged = tmp_path / "images" / "03.jpg"
    damaged.write_bytes(damaged.read_bytes()[:150])
    common = (
        "benchmark", path, "--data", data.path, "--seconds=0.3", "--batch=4", "--preprocess=0..1"
    )  # fmt: skip
    found = deploykit(*common, "--input=tfdata", "--on-error=skip", "--json")
    text = "photos{} -> 8x8 bilinear, 0..1 (from --preprocess)"
    assert (found.status, found.stderr.count("\n")) == (0, 1), found.stderr
    assert found.document["fed"] == {"image": text.format(" of several sizes")}
    assert found.document["skipped"] == [str(damaged)]
    assert found.document["data"]["records"] == 7
    found = deploykit(*common, "--input=queue")
    assert (found.status, found.printed) == (2, "")
    assert shows(found.stderr, "record-not-usable", source=damaged)


@pytest.mark.slow
def test_damaged_images_in_records_are_counted(tmp_path, deploykit):
    with building(["image"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 8, 8, 3], name="image")
        tf.reduce_mean(x, [1, 2, 3], name="out")
    path = written(graph, tmp_path / "net.pb")
    contents = [made_up.example(image=[made_up.jpeg(n)]) for n in range(8)]
    contents[3] = made_up.example(image=[made_up.jpeg(3)[:150]])
    features = {"image": Feature("string", (), "image")}
    data = made_up.write_shards(tmp_path / "records", features, contents)
    common = (
        "benchmark", path, "--data", data.path, "--seconds=0.3", "--batch=4", "--preprocess=0..1"
    )  # fmt: skip
    found = deploykit(*common, "--on-error=skip", "--json")
    text = "photos{} -> 8x8 bilinear, 0..1 (from --preprocess)"
    assert (found.status, found.stderr.count("\n")) == (0, 1), found.stderr
    assert found.document["fed"] == {"image": text.format(" 12x9")}
    assert found.document["skipped"] == [f"{data.files[1]}: record 1"]
    assert found.document["data"]["records"] == 7
    assert [each["style"] for each in found.document["styles"]] == list(STYLES)
    found = deploykit(*common, "--input=tfdata")
    assert (found.status, found.printed) == (2, "")
    assert shows(
        found.stderr, "record-not-usable", reason=Containing("jpeg::Uncompress failed. Invalid")
    )


@pytest.mark.slow
def test_options_of_tf_data(model, tmp_path, deploykit):
    data = made_up.write_records(tmp_path / "records")
    common = ("benchmark", model, "--data", data.path, "--batch=4", "--seconds=0.3", "--json",
              "--input=tfdata", "--shuffle", "--private-threads=1", "--cache")  # fmt: skip
    cache = tmp_path / "cache"
    for each in ("memory", cache):
        found = deploykit(*common, each)
        assert found.status == 0, found.stderr
        document = found.document
        assert [document[name] for name in ("shuffle", "cache", "buckets", "private_threads")] == [
            0, str(each), [], 1,
        ]  # fmt: skip
    found = deploykit(*common, cache)  # what lies there may be of other data
    assert (found.status, found.printed) == (4, "")
    assert shows(found.stderr, "cache-exists")


WRONG = (
    "--input=queue", "--input=all", "--simulated-compute-ms=20", "--run-ops=out", "--shuffle",
    "--data=none", "--data=EMPTY", "--data=NARROW",
    *(f"--data=DIR {more}" for more in (
        "--input=disk", "--simulated-compute-ms=-1", "--on-error=ignore", "--runs=3",
        "--plot=a.svg", "--shape=x=1,6", "--batch=1,2", "--concurrency=2", "--preprocess=none.json",
        "--run-ops=gone", "--inputs=out", "-o none/x.json", "--on-error=skip",
        "--input=feed --cache=memory", "--input=queue --private-threads=2", "--cache=none/x",
        "--buckets=4,8",
    )),
)  # fmt: skip


@pytest.mark.golden("usage/input")
def test_wrong_usage_is_said_before_anything_runs(model, tmp_path, deploykit, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "EMPTY").mkdir()
    (tmp_path / "NARROW").mkdir()
    (tmp_path / "NARROW" / "a.csv").write_text("1,2,3\n")
    made_up.write_csv(tmp_path / "DIR")
    assert_golden(*refusals(deploykit, ("benchmark", model), WRONG, tmp_path, feeds=True))


def test_arrays_of_another_type_are_refused(model, tmp_path, deploykit):
    np.savez(tmp_path / "a.npz", x=np.full((4, made_up.WIDTH), "a"))
    found = deploykit("benchmark", model, "--data", tmp_path / "a.npz", "--input=all")
    assert (found.status, found.printed) == (2, "")
    assert shows(found.stderr, "preprocess-type-between", got="string [6]", expected="float32")


@pytest.mark.slow
def test_a_training_step_of_a_model_that_is_frozen_when_read(deploykit, tmp_path):
    data = made_up.write_csv(tmp_path / "csv")
    found = deploykit(
        "benchmark", FASHION / "fashion.keras", "--data", data.path, "--run-ops=train"
    )
    assert (found.status, found.printed) == (2, "")
    assert shows(found.stderr, "graph-as-it-stands")


def test_a_graph_with_a_queue_of_its_own_reports(deploykit, tmp_path):
    path = written(hanging(), tmp_path / "hang.pb")
    data = tmp_path / "a.csv"
    data.write_text(",".join("1" * 9) + "\n")
    found = deploykit("benchmark", path, "--data", data, "--allow-op=QueueDequeueV2")
    assert (found.status, found.printed) == (2, "")
    assert shows(found.stderr, "queue-not-fed", node="taken")
