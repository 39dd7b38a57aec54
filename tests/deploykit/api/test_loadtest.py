"""`deploykit.load_test` from a notebook."""

import numpy as np
import pytest

import deploykit as api
from deploykit.client.call_options import LoadTestOptions
from deploykit.transforms.common.errors import Error
from tests.support import Containing, raises

X = {"x": np.ones((3, 2), np.float32)}


def test_options_are_fields_with_the_defaults_of_the_command(official, address):
    found = api.load_test(address, "echo", X, LoadTestOptions(seconds=0.1), version=3)
    assert [each.callers for each in found.loads] == [1, 2, 4, 8]
    assert official.requests[-1].model_spec.version.value == 3
    with pytest.raises(TypeError, match=Containing("'second'", "seconds").pattern):
        api.load_test(address, "echo", X, second=3)
    with raises(Error, "give-one"):
        api.load_test(address, "echo", X, rate=3, concurrency=[1])
