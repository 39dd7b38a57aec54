"""--header in the commands that run a model on CSV files: who reads the samples gets the rule."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deploykit as api
from deploykit.cli.build import table
from deploykit.client.call_options import LoadTestOptions
from deploykit.client.model_clients import prepared_calls
from deploykit.serving.client.endpoint import DEFAULT_CONNECTION
from deploykit.transforms.common.errors import GraphError
from tests.deploykit.batch_inference.tables.made_up_tables import graph
from tests.support import built, raises, tf

READ = {"data", "calibration", "evaluation", "warmup", "sources"}
NUMBERS = "0,1\n1,2\n3,4\n"  # three rows, or a header of numbers and two


def test_every_command_that_reads_samples_takes_header_and_columns():
    for words, entry in table().items():
        names = {spec["name"] for spec in entry["parameters"]}
        assert "header" in names or names.isdisjoint(READ), words
        if words not in ("input write", "records convert"):  # no tables, by column number
            assert "columns" in names or names.isdisjoint(READ), words


@pytest.mark.parametrize(("command", "runs"), [
    (api.tune, "tuning.tune_model"), (api.placement, "placement.find_placement"),
])  # fmt: skip
def test_inputs_in_memory_are_read_by_the_rule(tmp_path, monkeypatch, command, runs):
    class Taken(Exception):
        """The inputs of a run, in place of it."""

    def run(*given, **more):
        raise Taken(*given)

    monkeypatch.setattr(f"deploykit.api.{runs}", run)
    path = tmp_path / "a.csv"
    path.write_text(",x\n0,1\n1,3\n")  # the first cell is empty, as pandas writes an index
    with pytest.raises(Taken) as found:
        command(graph(x=("float32", (-1,))), data=path, header="yes")
    (feeding,) = [item for item in found.value.args if hasattr(item, "data")]
    assert feeding.data["x"].tolist() == [1, 3]


@pytest.mark.parametrize(("header", "rows"), [("auto", 3), ("yes", 2)])
def test_requests_and_warm_up_are_read_by_the_rule(tmp_path, official, header, rows):
    path = tmp_path / "a.csv"
    path.write_text(NUMBERS)
    address = f"127.0.0.1:{official.listen()}"
    how = LoadTestOptions(header=header)
    calls = prepared_calls(address, "echo", str(path), how, DEFAULT_CONNECTION)
    assert len(calls.requests) == rows
    model = graph(x=("float32", (-1, 2)))
    found = api.export(model, tmp_path, name="net", warmup=path, header=header)
    assert found.warm_up_requests == rows


@pytest.mark.sampled
def test_ship_sends_the_columns_of_a_table_as_warm_up(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": [1.0, 3.0] * 8, "b": [2.0, 4.0] * 8}), path)

    @built(["x"], ["y"])
    def net():
        x = tf.compat.v1.placeholder(tf.float32, [None, 2], name="x")
        tf.identity(2 * x, name="y")

    model = tmp_path / "net.pb"
    api.save_graph(net(), model)
    how = {"budget": 0.1, "allow_unverified": True}
    found = api.ship(
        model, tmp_path / "out", calibration=path, columns={"x": "a,b"}, engine="tensorflow", **how
    )
    stages = {each["stage"]: each for each in found.document()["stages"]}
    assert stages["export"]["document"]["warm_up_requests"] > 0


def test_columns_need_data(tmp_path):
    model, columns = graph(x=("float32", (-1, 2))), {"x": "a,b"}
    for needed, act in (
        ("--calibration", lambda: api.ship(model, tmp_path, columns=columns)),
        ("--data", lambda: api.verify(model, model, columns=columns)),
        ("--data", lambda: api.tune(model, columns=columns)),
        ("--warmup", lambda: api.export(model, tmp_path, name="m", columns=columns)),
    ):
        with raises(GraphError, "option-needs", option="--columns", needed=needed):
            act()
