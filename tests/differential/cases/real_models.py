"""Whole networks through each transform, compared before their softmax."""

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import deploykit
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.child_process import call
from tests.differential.case import Case
from tests.real.conftest import made_by
from tests.support import transform


@functools.cache
def _keras(name: str) -> Graph:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "model.keras"))
        call("tests.real.keras_nets:save", name, path)
        return _before_softmax(deploykit.freeze(path))


@functools.cache
def _lite0() -> Graph:
    folder = made_by("efficientnet_lite0/build.py")
    return _before_softmax(deploykit.load_graph(folder / "frozen.pb"))


def _lite0_of_2016() -> Graph:
    """Return the net with biases for batch norms, and with Add, which the original quantizes."""
    steps = "fold_batch_norms rename_op(old_op_name=AddV2, new_op_name=Add)"
    return transform(_lite0(), f"remove_nodes(op=Identity) {steps}")


def _before_softmax(graph: Graph) -> Graph:
    (softmax,) = (node for node in graph if node.op == "Softmax")
    graph.outputs = softmax.inputs
    graph.prune()
    return graph


NETS: dict[str, Callable[[], Graph]] = {
    "MobileNetV2": lambda: _keras("MobileNetV2").copy(),
    "ResNet50": lambda: _keras("ResNet50").copy(),
    "Lite0": lambda: _lite0().copy(),
}
BAR = 1e-4  # the bar of folding fifty batch norms

# transform string -> deploykit's, deviations, tolerance
STRINGS: dict[str, tuple[str, tuple[str, ...], float]] = {
    "add_default_attributes": ("", (), 0),
    "remove_control_dependencies": ("", (), 0),
    "remove_device": ("", (), 0),
    "remove_nodes(op=Identity, op=CheckNumerics)": ("", (), 0),
    "strip_unused_nodes": ("", (), 0),
    "sort_by_execution_order": ("", (), 0),
    "inline_partitionedcall": ("inline_functions", (), 0),
    "fold_constants": ("", ("names of folded nodes", "names behind Identity"), BAR),
    "fold_constants fold_batch_norms": (
        "", ("names behind Identity", "more batch norms", "names of folded layers"), BAR
    ),
}  # fmt: skip

CASES = [
    Case(f"{net}, {text}", make, text, ours, deviations, tolerance, slow=True)
    for net, make in NETS.items()
    for text, (ours, deviations, tolerance) in STRINGS.items()
] + [
    Case("MobileNetV2, merge_duplicate_nodes", NETS["MobileNetV2"], "merge_duplicate_nodes",
         slow=True),
    Case("ResNet50, merge_duplicate_nodes", NETS["ResNet50"], "merge_duplicate_nodes",
         deviations=("which of equals stays",), slow=True),
    Case("Lite0, merge_duplicate_nodes", NETS["Lite0"], "merge_duplicate_nodes", slow=True),
    Case("MobileNetV2, fold_old_batch_norms", NETS["MobileNetV2"], "fold_old_batch_norms",
         slow=True),
    Case("ResNet50, fold_old_batch_norms", NETS["ResNet50"], "fold_old_batch_norms", slow=True),
    Case("Lite0, fold_old_batch_norms", NETS["Lite0"], "fold_old_batch_norms",
         deviations=("more batch norms",), tolerance=BAR, slow=True),
    *(Case(f"{net}, quantize_weights", NETS[net], f"quantize_weights(minimum_size={size})",
           f"quantize_weights(minimum_size={size}, per_channel=false)", deviations, slow=True)
      for net, size, deviations in (
          # larger than every vector: the original quantizes batch norms, and makes NaN of zeros
          ("MobileNetV2", 1281, ()),
          ("ResNet50", 2049, ()),
          ("Lite0", 1281, ()),
      )),
] + [
    Case("Lite0 without batch norms, quantize_nodes", _lite0_of_2016,
         # ours leaves some biases float
         "quantize_weights(minimum_size=1281) quantize_nodes(ignore_op=BiasAdd)",
         "quantize_weights(minimum_size=1281, per_channel=false) quantize_nodes(ignore_op=BiasAdd)",
         ("constants in 8 bits", "which of equals stays"), slow=True),
]  # fmt: skip
