"""tf.data service: distributes data over its workers, and checks that an epoch is complete.

Every worker reads a share of the data (dynamic sharding): files for CSV and TFRecords, single
records for images and arrays. Each record arrives once, in no defined order.
"""

import socket
from typing import Any

import numpy as np

from deploykit.data.data import Data
from deploykit.transforms.common.errors import GraphError, VerificationError
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.untrusted.files import lines

SHARDING = "DYNAMIC"
PROTOCOL = "grpc://"
PATIENCE = 30.0  # seconds to wait for the first response
_FILE = 1 << 40  # an id is the file number times this, plus the record number in the file
_AT_ONCE = 4096  # ids in a batch


def reachable(address: str) -> str:
    """Return the address with its protocol. GraphError: nothing listens there.

    This check is needed because TensorFlow would retry forever.
    """
    host, colon, port = address.removeprefix(PROTOCOL).rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) < 1 << 16):
        raise GraphError(
            "unexpected",
            what="the address of the tf.data service",
            got=address,
            expected="HOST:PORT",
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
    except OSError as error:
        reason = error.strerror or error
        raise GraphError("service-unreachable", source=address, reason=reason) from None
    return f"{PROTOCOL}{host}:{port}"


def distributed(dataset: Any, address: str, sharding: str = SHARDING) -> Any:
    """Return a tf.data.Dataset that the workers of a service compute in shares."""
    import tensorflow as tf

    service = tf.data.experimental.service
    return dataset.apply(service.distribute(service.ShardingPolicy[sharding], address))


def check_epoch(data: Data, address: str, sharding: str = SHARDING) -> int:
    """Read the ids of one epoch from the service, and return the number of records.

    Runs TensorFlow. VerificationError: a record is missing or arrived twice. GraphError: no worker
    responds.
    """
    expected = _expected(data)
    result, times = np.unique(_found(data, address, sharding), return_counts=True)
    where = f"{data.path}: an epoch of the tf.data service at {address}"
    if (again := int(times.sum()) - len(result)) > 0:
        raise VerificationError("service-repeats", what=where, count=len(result), repeats=again)
    lost, strange = len(np.setdiff1d(expected, result)), len(np.setdiff1d(result, expected))
    if lost or strange:
        raise VerificationError(
            "service-loses", what=where, lost=lost, count=len(expected), strange=strange
        )
    return len(result)


def _expected(data: Data) -> Array:
    counts = data.counts or [
        sum(1 for _ in lines(file, "CSV file")) - int(data.header) for file in data.files
    ]
    return np.concatenate([number * _FILE + np.arange(n) for number, n in enumerate(counts)])


def _found(data: Data, address: str, sharding: str) -> Array:
    """Return the ids in the order in which the service returns them."""
    import tensorflow as tf

    results = [np.zeros(0, np.int64)]
    options = tf.compat.v1.RunOptions(timeout_in_ms=int(1000 * PATIENCE))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ids = distributed(_ids(data).batch(_AT_ONCE), address, sharding)
        iterator = tf.compat.v1.data.make_initializable_iterator(ids)
        some = iterator.get_next()
        try:
            session.run(iterator.initializer, options=options)
            while True:
                results.append(session.run(some, options=options))
        except tf.errors.OutOfRangeError:
            return np.concatenate(results)
        except tf.errors.DeadlineExceededError:
            raise GraphError("service-silent", address=address, seconds=PATIENCE) from None
        except tf.errors.OpError as error:
            raise GraphError(
                "service-failed", address=address, reason=error.message[:200]
            ) from None


def _ids(data: Data) -> Any:
    """Return a dataset of the ids of all records, sharded in the same way as the records."""
    import tensorflow as tf

    def of_file(number: Any, file: Any) -> Any:
        if data.kind == "csv":
            opened = tf.data.TextLineDataset(file, data.compression).skip(int(data.header))
        else:
            opened = tf.data.TFRecordDataset(file, data.compression)
        return opened.enumerate().map(lambda record, _: number * _FILE + record)

    if data.kind in ("csv", "records"):
        numbers = np.arange(len(data.files))
        files = tf.data.Dataset.from_tensor_slices((numbers, list(data.files)))
        return files.interleave(of_file, cycle_length=2)
    return tf.data.Dataset.from_tensor_slices(_expected(data))
