"""deploykit's own descriptors: equal to the installed ones, and beside them in one process."""

import gzip
import itertools
import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from deploykit.transforms.ir import protos
from deploykit.transforms.ir.protos import DESCRIPTORS, private_messages, private_pool
from tests import pairwise
from tests.environments import python_with

MODULES = ("tensorflow", "tensorflow_serving.apis.predict_pb2", "tritonclient.grpc", "deploykit")
CODE = """
import importlib, os, sys
import numpy as np
sys.path.append(os.environ.get("TRITONCLIENT", ""))
for name in sys.argv[1:]:
    if name == "deploykit":
        from deploykit.serving.protocol.codec import encode
        from deploykit.serving.protocol.protos import PredictRequest
        from deploykit.transforms.ir.protos import private_messages
        request = PredictRequest()
        request.inputs["x"].CopyFrom(encode(np.ones(3, np.float32)))
        ours = private_messages("tensorflow.serving", ["PredictRequest"])["PredictRequest"]
        assert ours.FromString(request.SerializeToString()).inputs["x"].dtype == 1
    else:
        importlib.import_module(name)
from tensorflow_serving.apis.predict_pb2 import PredictRequest as official
assert official.FromString(request.SerializeToString()).inputs["x"].dtype == 1
assert list(sys.modules["tensorflow"].constant([1.0]).numpy()) == [1.0]
"""
WITHOUT_TRITON = [each for each in MODULES if each != "tritonclient.grpc"]


def check_imports(order: Sequence[str], **variables: str) -> None:
    """Import modules in one process, and exchange messages between them."""
    command = [sys.executable, "-c", CODE, *order]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.sampled
@pytest.mark.parametrize("order", [WITHOUT_TRITON, WITHOUT_TRITON[::-1]], ids=" ".join)
def test_deploykit_may_be_imported_first_or_last(order):
    check_imports(order)


ORDERS = list(itertools.permutations(MODULES))
SLOW = pairwise.sample(ORDERS, lambda order: itertools.combinations(order, 2), pairwise.seed())
"""Those in which each module comes before and after each other one."""


@pytest.mark.sampled
@pytest.mark.parametrize(
    "order",
    [pytest.param(each, id=" ".join(each), marks=pairwise.marks(each, SLOW)) for each in ORDERS],
)
def test_every_order_of_imports_works(order):
    """tritonclient limits protobuf, so it is installed elsewhere, without what it depends on."""
    alone = ("--no-deps", "tritonclient==2.63.0", "python-rapidjson==1.21")
    folder = python_with("tritonclient", *alone).parents[1]
    (packages,) = folder.glob("lib/python3*/site-packages")
    check_imports(order, TRITONCLIENT=str(packages))


def names(package: str) -> list[str]:
    """Return the messages of the private pool that the installed packages have, too."""
    if package == "tensorflow":
        return protos.__all__
    content = gzip.decompress(DESCRIPTORS.read_bytes())
    files = descriptor_pb2.FileDescriptorSet.FromString(content).file
    theirs = [each for each in files if each.name.startswith("tensorflow_serving/")]
    return [message.name for file in theirs for message in file.message_type]


@pytest.mark.parametrize("package", ["tensorflow", "tensorflow.serving"])
def test_the_private_messages_are_those_that_are_installed(package):
    """A field may be newer or older; a number means the same in both."""
    with protos.without_tensorflow_start():
        from tensorflow_serving.apis import (  # noqa: F401  they register their messages
            model_service_pb2,
            prediction_log_pb2,
            prediction_service_pb2,
        )
    for name, message in private_messages(package, names(package)).items():
        installed = descriptor_pool.Default().FindMessageTypeByName(f"{package}.{name}")
        assert message.DESCRIPTOR.file.pool is private_pool()
        first, second = descriptor_pb2.DescriptorProto(), descriptor_pb2.DescriptorProto()
        message.DESCRIPTOR.CopyToProto(first)
        installed.CopyToProto(second)
        theirs = {field.number: field for field in second.field}
        for field in first.field:
            assert theirs.get(field.number, field) == field
