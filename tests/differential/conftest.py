"""One worker with the original tool for all tests, and one TensorFlow for all of deploykit."""

import importlib

import pytest

from deploykit.importers import initializers, resaving
from deploykit.transforms.runtime import constants
from deploykit.transforms.shapes import static_shapes
from tests.differential.original import Original
from tests.support import call_here


@pytest.fixture(scope="package")
def original():
    worker = Original()
    yield worker
    worker.close()


@pytest.fixture(scope="module", autouse=True)
def in_process():
    """Run what would start TensorFlow in a child here, where it has been started."""

    with pytest.MonkeyPatch.context() as patch:
        sparsify_gather = importlib.import_module("deploykit.transforms.sparsify_gather")
        for module in (constants, initializers, resaving, sparsify_gather, static_shapes):
            patch.setattr(module, "call", call_here)
        yield
