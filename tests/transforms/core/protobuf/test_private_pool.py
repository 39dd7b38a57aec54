"""deploykit's own descriptors: equal to the installed ones, and beside them in one process."""

import itertools
import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from deploykit.serving.protocol import protos as serving_protos
from deploykit.serving.protocol.protos import can_load
from deploykit.transforms.core import protos
from deploykit.transforms.core.protobuf.private_pool import private_messages, private_pool
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
        from deploykit.transforms.core.protobuf.private_pool import private_messages
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


@pytest.mark.slow
@pytest.mark.parametrize("order", [WITHOUT_TRITON, WITHOUT_TRITON[::-1]], ids=" ".join)
def test_deploykit_may_be_imported_first_or_last(order):
    check_imports(order)


@pytest.mark.slow
@pytest.mark.parametrize("order", list(itertools.permutations(MODULES)), ids=" ".join)
def test_every_order_of_imports_works(order):
    """tritonclient limits protobuf, so it is installed elsewhere, without what it depends on."""
    alone = ("--no-deps", "tritonclient==2.63.0", "python-rapidjson==1.21")
    folder = python_with("tritonclient", *alone).parents[1]
    (packages,) = folder.glob("lib/python3*/site-packages")
    check_imports(order, TRITONCLIENT=str(packages))


@pytest.mark.parametrize(
    ("package", "module"), [("tensorflow", protos), ("tensorflow.serving", serving_protos)]
)
def test_the_private_messages_are_those_that_are_installed(package, module):
    """A field may be newer or older; a number means the same in both."""
    names = [each for each in module.__all__ if not isinstance(getattr(module, each), str)]
    of_tensorflow = {"Example", "TensorProto"} if module is serving_protos else set()
    names = [each for each in names if each not in of_tensorflow]
    for name, message in private_messages(package, names).items():
        installed = getattr(module, name).DESCRIPTOR
        assert installed.file.pool is descriptor_pool.Default()
        assert message.DESCRIPTOR.file.pool is private_pool()
        first, second = descriptor_pb2.DescriptorProto(), descriptor_pb2.DescriptorProto()
        message.DESCRIPTOR.CopyToProto(first)
        installed.CopyToProto(second)
        theirs = {field.number: field for field in second.field}
        for field in first.field:
            assert theirs.get(field.number, field) == field


@pytest.mark.parametrize(
    ("generated", "installed", "loads"),
    [
        (None, "4.25.9", False),
        (None, "7.36.2", False),
        ("5.28.3", "5.28.3", True),
        ("5.28.3", "5.28.1", False),
        ("5.28.3", "5.29.0", True),
        ("5.28.3", "6.31.1", True),
        ("5.28.3", "7.36.2", False),
        ("6.31.1", "5.29.6", False),
        ("6.31.1", "7.36.2", True),
        ("6.31.1", "6.32.0rc1", True),
        ("6.31.1", "8.0.0", False),
    ],
)
def test_versions_say_whether_generated_modules_load(generated, installed, loads):
    header = "" if generated is None else f"# Protobuf Python Version: {generated}\n"
    assert can_load(f'# -*- coding: utf-8 -*-\n{header}"""Generated code."""\n', installed) is loads
