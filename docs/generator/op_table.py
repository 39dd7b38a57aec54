"""Update the table of TensorFlow's ops: `make ops` runs it with each new release."""

import gzip
import json
from collections.abc import Iterable

from deploykit.transforms.engines.packages import tensorflow_wheel
from deploykit.transforms.ir import ops
from deploykit.transforms.ir.protos import OpDef, OpList


def merge(new_ops: Iterable[OpDef], release: ops.Release) -> None:
    """Update the table with the ops of a release that is newer than those in it."""
    table = (
        OpList.FromString(gzip.decompress(ops.TABLE.read_bytes())).op if ops.TABLE.exists() else ()
    )
    known = {op.name: op for op in table}
    new = {op.name: op for op in new_ops}
    spans = dict(ops.spans()) if ops.RELEASES.exists() else {}
    for name in sorted({*known, *new}):
        since, until = spans.get(name, (None, None))
        if name not in known and known:
            spans[name] = release, None
        elif name not in new and until is None:
            spans[name] = since, release
    merged = OpList(op=[op for _, op in sorted({**known, **new}.items())])
    ops.TABLE.write_bytes(gzip.compress(merged.SerializeToString(deterministic=True), 9, mtime=0))
    texts = {op: [ops.release_text(item) for item in span] for op, span in sorted(spans.items())}
    ops.RELEASES.write_text(json.dumps(texts, indent=1) + "\n")


def registered() -> list[OpDef]:
    """Return the ops of the installed TensorFlow, without their documentation."""
    import tensorflow  # noqa: F401  importing TensorFlow fills the registry
    from tensorflow.python.client import pywrap_tf_session

    buffer = pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList())
    return [undocumented(op) for op in OpList.FromString(buffer).op]


def undocumented(op: OpDef) -> OpDef:
    """Return an op definition without its documentation."""
    for part in (op, *op.input_arg, *op.output_arg, *op.attr):
        part.ClearField("description")
    op.ClearField("summary")
    return op


if __name__ == "__main__":
    installed = tensorflow_wheel()
    if installed is not None:
        merge(registered(), installed.numbers)
