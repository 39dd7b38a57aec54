"""tf.data service with two workers: each record of an epoch once; a wrong sharding is caught."""

import json

import numpy as np
import pytest

from deploykit.data.data import open_data
from deploykit.data.pipeline import Pipeline
from deploykit.data.preprocessing import Preprocessing
from deploykit.data.tfdata_service import check_epoch, distributed, reachable
from deploykit.transforms.common.errors import GraphError, VerificationError
from tests.deploykit.data.made_up import batches_eagerly, steps_for
from tests.deploykit.data.tfdata_servers import serving
from tests.support import raises, shows, tf

FILES, LINES = 5, 7


@pytest.fixture(scope="module")
def address():
    """Where two workers serve for all tests."""
    with serving(2) as found:
        yield found


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """Files of different lengths; the first number of each line is its own."""
    folder = tmp_path_factory.mktemp("csv")
    count = 0
    for number in range(FILES):
        rows = [f"{count + n},0.5,1" for n in range(LINES + number)]
        (folder / f"{number}.csv").write_text("\n".join(rows) + "\n")
        count += len(rows)
    return folder, count


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    path = tmp_path_factory.mktemp("arrays") / "arrays.npz"
    np.savez(path, x=np.arange(50, dtype=np.float32)[:, np.newaxis])
    return path


@pytest.mark.sampled
def test_an_epoch_is_every_record_once(address, lines, arrays):
    folder, count = lines
    assert check_epoch(open_data(str(folder)), address) == count
    assert check_epoch(open_data(str(arrays)), address) == 50


def test_workers_that_do_not_share_the_files_are_caught(address, lines):
    folder, count = lines
    with raises(VerificationError, "service-repeats", count=count, repeats=count):
        check_epoch(open_data(str(folder)), address, "OFF")


def test_a_lost_record_is_caught(address, lines, monkeypatch):
    from deploykit.data import tfdata_service

    folder, count = lines
    whole = tfdata_service._ids
    monkeypatch.setattr(
        tfdata_service, "_ids", lambda data: whole(data).filter(lambda each: tf.not_equal(each, 3))
    )
    with raises(VerificationError, "service-loses", lost=1, count=count):
        check_epoch(open_data(str(folder)), address)


@pytest.mark.slow
def test_the_pipeline_of_the_workers_gives_each_record_once_an_epoch(address, lines):
    folder, count = lines
    data = open_data(str(folder))
    steps = steps_for(data, None, Preprocessing())
    pipeline = Pipeline(data, steps, 4, epochs=2, threads=2, shuffle=1, service=address)
    found = np.concatenate([batch["x"][:, 0] for batch in batches_eagerly(pipeline)])
    assert sorted(found) == sorted([*range(count)] * 2)


@pytest.mark.sampled
def test_batches_are_whole_where_the_model_demands_it(address, lines):
    folder, count = lines
    data = open_data(str(folder))
    steps = steps_for(data, None, Preprocessing())
    pipeline = Pipeline(data, steps, 8, whole=True, service=address)
    sizes = [len(batch["x"]) for batch in batches_eagerly(pipeline)]
    assert sizes == [8] * (count // 8)


def test_without_a_worker_it_says_so(lines, monkeypatch):
    from deploykit.data import tfdata_service

    monkeypatch.setattr(tfdata_service, "PATIENCE", 1.0)
    dispatcher = tf.data.experimental.service.DispatchServer()
    with raises(GraphError, "service-silent"):
        check_epoch(open_data(str(lines[0])), dispatcher.target)


@pytest.mark.parametrize("address", ["", "localhost", "localhost:", "localhost:x", "h:70000"])
def test_what_is_no_address_is_refused(address):
    with raises(GraphError, "unexpected", expected="HOST:PORT"):
        reachable(address)


@pytest.mark.sampled
def test_a_dataset_may_be_distributed_by_hand(address):
    numbers = distributed(tf.data.Dataset.range(20), address)
    assert sorted(numbers.as_numpy_iterator()) == [*range(20)]


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    from deploykit.importers.graph_files import save_graph
    from tests.support import build

    def make():
        import tensorflow.compat.v1 as tf

        x = tf.placeholder(tf.float32, [None, 2], name="x")
        tf.reduce_sum(x, 1, name="out")

    path = tmp_path_factory.mktemp("net") / "net.pb"
    save_graph(build(make, ("x",), ("out",)), path)
    return path


@pytest.mark.sampled  # three starts of TensorFlow
def test_benchmark_runs_behind_a_service(deploykit, lines, net, address, tmp_path):
    (folder, count), output = lines, tmp_path / "result.json"
    address = address.removeprefix("grpc://")
    found = deploykit("benchmark", net, "--data", folder, "--input", "tfdata", "--service-address",
                      address, "--seconds", "1", "-o", output)  # fmt: skip
    assert found.status == 0, found.stderr
    assert f"{count} records" in found.stdout
    assert json.loads(output.read_text())["service_epoch"] == count


def test_a_service_feeds_tfdata_alone(deploykit, lines, net):
    folder, _ = lines
    found = deploykit("benchmark", net, "--data", folder, "--service-address", "localhost:1")
    assert found.status == 2
    assert shows(found.stderr, "only-for", what="input tfdata (--input)")
    found = deploykit("benchmark", net, "--data", folder, "--input", "tfdata",
                      "--service-address", "localhost:1")  # fmt: skip
    assert found.status == 2
    assert shows(found.stderr, "service-unreachable", reason="Connection refused")


def test_texts_of_a_model_that_demands_its_batch_are_refused(tmp_path):
    from dataclasses import replace

    from deploykit.data.preprocessing import Steps
    from deploykit.data.tfdata import dataset

    np.savez(tmp_path / "texts.npz", text=np.array(["a b", "c"]))
    data = open_data(str(tmp_path / "texts.npz"))
    steps = {"text": Steps("text", split=" ", dtype="string")}
    pipeline = Pipeline(data, steps, 2, whole=True)
    assert len(list(dataset(pipeline))) == 1
    with raises(GraphError, "service-batch-fixed"):
        dataset(replace(pipeline, service="grpc://localhost:1"))
