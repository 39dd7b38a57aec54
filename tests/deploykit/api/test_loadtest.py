"""`deploykit.load_test` from a notebook."""

import numpy as np
import pytest

import deploykit as api
from deploykit.client.call_options import LoadTestOptions
from deploykit.transforms.common.errors import Error
from tests.support import raises

X = {"x": np.ones((3, 2), np.float32)}


@pytest.mark.slow
def test_the_command_says_what_the_function_returns(deploykit, address, tmp_path):
    np.savez(tmp_path / "x.npz", **X)
    command = deploykit("load-test", address, "echo", "--data", tmp_path / "x.npz", "--rate=50",
                        "--seconds=0.3", "--batch=3", "--json")  # fmt: skip
    for data in (X, tmp_path / "x.npz"):
        found = api.load_test(address, "echo", data, rate=50, seconds=0.3, batch=3)
        document = found.document()
        loads, measured = (each.pop("loads") for each in (document, command.document))
        assert {name: command.document[name] for name in document} == document
        assert [each.keys() for each in loads] == [each.keys() for each in measured]
        assert loads[0]["rate"] == measured[0]["rate"] == 50
        assert loads[0]["failed"] == measured[0]["failed"] == 0
    assert command.document["inputs"] == list(found.takes.inputs) == ["x"]


def test_options_are_fields_with_the_defaults_of_the_command(official, address):
    found = api.load_test(address, "echo", X, LoadTestOptions(seconds=0.1), version=3)
    assert [each.callers for each in found.loads] == [1, 2, 4, 8]
    assert official.requests[-1].model_spec.version.value == 3
    with pytest.raises(TypeError, match=r"'second' \(did you mean seconds\?\)"):
        api.load_test(address, "echo", X, second=3)
    with raises(Error, "give-one"):
        api.load_test(address, "echo", X, rate=3, concurrency=[1])
