"""`deploykit.status` from a notebook."""

import json

import pytest

import deploykit as api
from deploykit.transforms.common.errors import Error
from tests.support import raises


@pytest.mark.parametrize("model", [None, "echo", "loading"])
def test_the_command_says_what_the_function_returns(deploykit, address, model):
    found = api.status(address, model)
    document = json.loads(json.dumps(found.document()))
    command = deploykit("status", address, *([model] if model else []), "--json")
    assert {name: command.document[name] for name in document} == document
    assert command.status == (5 if found.problem else 0)
    assert bool(found.problem) == (model == "loading")
    assert found.problem in command.stderr


def test_options_are_fields_of_the_connection(official, address):
    api.status(address, "echo", version=3, timeout=20)
    assert official.requests[-1].model_spec.version.value == 3
    with pytest.raises(TypeError, match=r"'tymeout' \(did you mean timeout\?\)"):
        api.status(address, tymeout=3)
    with raises(Error, "version-needs-model"):
        api.status(address, version=3)
