"""The transforms as a notebook and the command line list them."""

import json

import pytest

import deploykit as api
from deploykit.transforms.common.errors import PipelineError
from deploykit.transforms.ir import pipeline
from tests.support import raises


def test_all_transforms_and_their_other_names():
    found = api.list_transforms()
    assert found.names == tuple(sorted((*pipeline.names(), *pipeline.ALIASES)))
    with raises(PipelineError, "missing"):
        api.list_transforms("fold_constant")


@pytest.mark.parametrize("name", [None, "quantize_weights"])
def test_the_command_shows_what_the_function_returns(deploykit, name):
    given = [] if name is None else [name]
    found = deploykit("transforms", *given, "--json")
    plain = json.loads(json.dumps(api.list_transforms(name).document()))
    assert found.document["transforms"] == plain["transforms"]
    lines = deploykit("transforms", *given).stdout.splitlines()
    assert len(lines) > 3
    assert lines[0].split()[0] == (name or "add_default_attributes")
