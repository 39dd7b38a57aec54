"""One TensorFlow for all models of the matrix."""

import pytest

from deploykit.importers import initializers, resaving
from deploykit.importers.variable_updates import updated_variables
from deploykit.transforms.shapes import static_shapes
from tests.support import call_here


@pytest.fixture(scope="module", autouse=True)
def in_process():
    """Run what would start TensorFlow in a child here, where it has been started."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (initializers, resaving, static_shapes, updated_variables):
            patch.setattr(module, "call", call_here)
        yield
