"""deploykit's own descriptors of TensorFlow's messages, in a pool of their own.

Generated modules register their files in protobuf's default pool, where two copies of one file
fail. A private pool cannot collide with TensorFlow, tensorflow-serving-api or tritonclient,
whichever of them a program imports first. Its classes are not theirs: only bytes go between them.

`make protos` writes `descriptors.binpb.gz` from the installed packages.
"""

import functools
import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

DESCRIPTORS = Path(__file__).with_name("descriptors.binpb.gz")
"""A serialized FileDescriptorSet, each file behind those that it imports."""


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
