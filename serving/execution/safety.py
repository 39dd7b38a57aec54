"""Whether a SavedModel can be handed to TensorFlow: a bad one would end the process that serves.

It acts as soon as it is loaded, so its proto is checked before; this is no sandbox.
"""

from collections.abc import Iterable

from deploykit.serving.protocol.protos import MetaGraphDef
from deploykit.serving.protocol.signatures import HIDDEN
from deploykit.transforms.core.checks.side_effects import READING_OPS, refuse_side_effects
from deploykit.transforms.core.checks.validate import check_ends, validate
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.graph import Graph

_INIT_KEYS = ("saved_model_main_op", "legacy_init_op")


def check_safe(meta: MetaGraphDef, allowed: Iterable[str] = ()) -> None:
    """Check what loading and calling a model runs.

    GraphError: a node that TensorFlow would die of, or a tensor that is not there. RefusedError: an
    op that reaches beyond the model, unless it is among those `allowed`.
    """
    graph = Graph.from_graph_def(meta.graph_def)
    validate(graph)  # all of it, as TensorFlow imports all of it
    wanted = list(dict.fromkeys(_run(meta)))
    for tensor in wanted:
        if tensor.split(":")[0].lstrip("^") not in graph:
            raise GraphError(f"a signature or init op names '{tensor}', but no such node exists")
    graph.inputs, graph.outputs = (), tuple(wanted)
    check_ends(graph)
    graph.prune()
    refuse_side_effects(graph, [*READING_OPS, *allowed])


def _run(meta: MetaGraphDef) -> Iterable[str]:
    """Yield the names of nodes that are run, one day or another."""
    for name, signature in meta.signature_def.items():
        if name.startswith(HIDDEN) and name != "__saved_model_init_op":
            continue
        for info in signature.outputs.values():
            if info.name:
                yield info.name
    for key in _INIT_KEYS:
        for name in meta.collection_def[key].node_list.value if key in meta.collection_def else ():
            yield name
    if meta.saver_def.restore_op_name:
        yield meta.saver_def.restore_op_name
