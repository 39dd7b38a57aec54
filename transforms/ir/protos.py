"""TensorFlow's protobuf classes without starting TensorFlow, from a private descriptor pool."""

import functools
import gzip
import importlib.util
import sys
import threading
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

from deploykit.transforms.engines.packages import package_folder

DESCRIPTORS = Path(__file__).with_name("descriptors.binpb.gz")
"""A serialized FileDescriptorSet, each file after its imports."""


@functools.cache
def private_pool() -> Any:
    """Return the DescriptorPool."""
    pool = descriptor_pool.DescriptorPool()
    content = gzip.decompress(DESCRIPTORS.read_bytes())
    for file in descriptor_pb2.FileDescriptorSet.FromString(content).file:
        pool.Add(file)
    return pool


def private_messages(package: str, names: Iterable[str]) -> dict[str, type[Message]]:
    """Return classes by name. `package` is that of the .proto files, such as `tensorflow`."""
    pool = private_pool()
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in names
    }


_placing = threading.RLock()


@contextmanager
def without_tensorflow_start() -> Iterator[None]:
    """Import modules of TensorFlow without running its `__init__`.

    Another thread that imports TensorFlow at the same time gets an empty module.
    """
    with _placing:
        spec = None if "tensorflow" in sys.modules else importlib.util.find_spec("tensorflow")
        if spec is None or spec.submodule_search_locations is None:
            yield
            return
        placeholder = types.ModuleType("tensorflow")
        placeholder.__path__ = list(spec.submodule_search_locations)
        placeholder.__spec__ = spec  # for `find_spec` in other threads
        sys.modules["tensorflow"] = placeholder
        try:
            yield
        finally:
            del sys.modules["tensorflow"]


__all__ = [
    "AssetFileDef", "AttrValue", "BundleEntryProto", "BundleHeaderProto", "Example", "FunctionDef",
    "FunctionDefLibrary", "GraphDef", "MetaGraphDef", "NameAttrList", "NodeDef", "OpDef", "OpList",
    "SavedModel", "SignatureDef", "TensorInfo", "TensorProto", "TensorShapeProto", "VariableDef",
    "VersionDef",
]  # fmt: skip

if TYPE_CHECKING or package_folder() is not None:
    with without_tensorflow_start():
        from tensorflow.core.example.example_pb2 import Example
        from tensorflow.core.framework.attr_value_pb2 import AttrValue, NameAttrList
        from tensorflow.core.framework.function_pb2 import FunctionDef, FunctionDefLibrary
        from tensorflow.core.framework.graph_pb2 import GraphDef
        from tensorflow.core.framework.node_def_pb2 import NodeDef
        from tensorflow.core.framework.op_def_pb2 import OpDef, OpList
        from tensorflow.core.framework.tensor_pb2 import TensorProto
        from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto
        from tensorflow.core.framework.variable_pb2 import VariableDef
        from tensorflow.core.framework.versions_pb2 import VersionDef
        from tensorflow.core.protobuf.meta_graph_pb2 import (
            AssetFileDef,
            MetaGraphDef,
            SignatureDef,
            TensorInfo,
        )
        from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
        from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto, BundleHeaderProto
else:
    globals().update(private_messages("tensorflow", __all__))
