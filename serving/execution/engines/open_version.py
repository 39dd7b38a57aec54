"""A version directory opened: which engine computes which signature of it."""

from pathlib import Path

from deploykit.serving.execution.batch_parts import BatchParts
from deploykit.serving.execution.engines.engine import Loading
from deploykit.serving.execution.engines.tensorflow_engine import TensorFlowEngine, Traits
from deploykit.serving.execution.quick_calls import QuickCalls
from deploykit.serving.execution.row_independence import unmixed
from deploykit.serving.execution.safety import check_safe
from deploykit.serving.execution.servable import Servable
from deploykit.serving.protocol.signatures import read_meta_graph, signatures_of


def open_version(folder: Path, name: str, version: int, loading: Loading) -> Servable:
    """Load a version directory.

    FileError, GraphError: it is no sound SavedModel. RefusedError: it does what is not allowed.
    """
    meta = read_meta_graph(folder)
    check_safe(meta, folder, loading.allowed_ops)
    signatures = signatures_of(meta)
    traits = Traits.of(meta, signatures)
    as_declared = {
        signature: each
        for signature, each in signatures.items()
        if traits.any_shape.isdisjoint(tensor.name for tensor in each.inputs.values())
    }  # its inputs come in the shape they have
    parts = BatchParts(signatures, unmixed(meta, as_declared) if loading.slots > 1 else ())
    quick = QuickCalls(meta, traits.photos)
    del meta  # it holds the weights, and so does a session
    engine = TensorFlowEngine(folder, signatures, traits, loading)
    engines = dict.fromkeys(signatures, engine)
    return Servable(folder, name, version, signatures, engines, quick, parts)
