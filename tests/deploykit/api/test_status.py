"""`deploykit.status` from a notebook."""

import pytest

import deploykit as api
from deploykit.transforms.common.errors import Error
from tests.support import Containing, raises


def test_options_are_fields_of_the_connection(official, address):
    api.status(address, "echo", version=3, timeout=20)
    assert official.requests[-1].model_spec.version.value == 3
    with pytest.raises(TypeError, match=Containing("'tymeout'", "timeout").pattern):
        api.status(address, tymeout=3)
    with raises(Error, "version-needs-model"):
        api.status(address, version=3)
