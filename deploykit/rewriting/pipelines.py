"""The standard sets of transforms, as transform strings."""

from collections.abc import Iterable

OPTIMIZE = """
inline_functions
remove_unused_functions
strip_unused_nodes
pin_training_switches
remove_nodes(op=Identity, op=CheckNumerics, op=StopGradient)
fold_constants(ignore_errors=true)
remove_idle_dropout
fold_batch_norms
merge_duplicate_nodes
sort_by_execution_order
"""

PREPARE_LAYERS = f"""{OPTIMIZE}
flatten_products
sink_reshapes
merge_duplicate_nodes
sort_by_execution_order
"""
"""What goes before 8-bit layers: products in all forms become MatMul, next to its bias."""


def quantize_string(
    minimum_size: int = 1024, skip: Iterable[str] = (), nodes: bool = False, ranges: str = ""
) -> str:
    """Return the standard set with 8-bit weights; with `nodes`, with TensorFlow's first 8-bit ops.

    Those are what the Graph Transform Tool's quantize_nodes wrote. With a file of `ranges` of the
    optimized graph, biases take back what rounded weights shift.
    """
    options = [f"minimum_size={minimum_size}", *(f'skip="{name}"' for name in skip)]
    options += [f'ranges="{ranges}"'] if ranges else []
    options += [] if nodes else ["keep_sums=true"]
    more = "quantize_nodes strip_unused_nodes" if nodes else ""
    return f"{OPTIMIZE} quantize_weights({', '.join(options)}) {more} sort_by_execution_order"
