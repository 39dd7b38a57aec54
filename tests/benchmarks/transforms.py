"""Each transform on Keras ResNet50, 98 MB, bytes to bytes, beside the Graph Transform Tool.

Both run in a process that is warm: ours without TensorFlow, the original after its import. Memory
is what our process takes at most beyond the loaded graph.
"""

import io
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.protos import GraphDef
from tests.benchmarks.figures import Figure
from tests.benchmarks.measuring import ROUNDS, run
from tests.benchmarks.nets import frozen_keras_net, interface_of
from tests.support import transform

# The original's transform string, and ours where it is another. freeze_requantization_ranges needs
# a log, and rename_node does next to nothing; some others find nothing to do and only read.
TRANSFORMS = {
    "add_default_attributes": "",
    "backport_concatv2": "",
    "backport_tensor_array_v3": "",
    "flatten_atrous_conv": "",
    "fold_batch_norms": "",
    "fold_constants": "",
    "fold_old_batch_norms": "",
    "fuse_pad_and_conv": "",
    "fuse_resize_and_conv": "",
    "fuse_resize_pad_and_conv": "",
    "inline_partitionedcall": "",
    "insert_logging(op=Relu)": "",
    "merge_duplicate_nodes": "",
    "obfuscate_names": "",
    "quantize_nodes": "",
    "quantize_weights": "quantize_weights(per_channel=false)",
    "remove_attribute(attribute_name=dilations)": "",
    "remove_control_dependencies": "",
    "remove_device": "",
    "remove_nodes(op=Identity)": "",
    "rename_attribute(old_attribute_name=T, new_attribute_name=_T)": "",
    "rename_op(old_op_name=AddV2, new_op_name=Add)": "",
    "round_weights": "",
    'set_device(device="/cpu:0")': "",
    "sort_by_execution_order": "",
    "sparsify_gather": "",
    "strip_unused_nodes": "",
}
RATIO, MEAN_RATIO = 2.0, 1.0
FILE_SIZES = 2.0  # of memory

Transform = Callable[[bytes, list[str], list[str], str], bytes]


def figures() -> list[Figure]:
    """Measure both in turn, one transform after another; a first round warms up."""
    model = frozen_keras_net("ResNet50")
    arguments = [str(model), *interface_of(model)]
    command = [sys.executable, "-m", __name__]
    workers = {
        side: subprocess.Popen(
            [*command, side, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for side in ("ours", "tool")
    }
    seconds: dict[tuple[str, str], list[float]] = {}
    for _ in range(1 + ROUNDS):
        for text, ours in TRANSFORMS.items():
            for side, asked in (("ours", ours or text), ("tool", text)):
                taken = _ask(workers[side], asked)
                seconds.setdefault((text, side), []).append(taken)
    for worker in workers.values():
        worker.communicate()
    found, means = [], [1.0] * ROUNDS
    for text, ours in TRANSFORMS.items():
        pair = [seconds[text, side][1:] for side in ("ours", "tool")]
        ratios = [a / b for a, b in zip(*pair, strict=True)]
        means = [mean * ratio for mean, ratio in zip(means, ratios, strict=True)]
        peak = float(run([*command, "memory", *arguments, ours or text]).output)
        found += [
            Figure(text, "s", *pair, at_most_ratio=RATIO),
            Figure("... its peak memory", "file sizes", [peak], at_most=FILE_SIZES),
        ]
    means = [mean ** (1 / len(TRANSFORMS)) for mean in means]
    return [*found, Figure("geometric mean of the ratios", "", means, at_most=MEAN_RATIO)]


def _ask(worker: subprocess.Popen[str], text: str) -> float:
    assert worker.stdin is not None
    assert worker.stdout is not None
    print(text, file=worker.stdin, flush=True)
    return float(worker.stdout.readline())


def _ours(content: bytes, inputs: list[str], outputs: list[str], text: str) -> bytes:
    graph = Graph.from_graph_def(GraphDef.FromString(content), inputs, outputs)
    content = io.BytesIO()  # as to a file: piece by piece
    content.writelines(transform(graph, text).serialized())
    return content.getvalue()


def _tool() -> Transform:
    import tensorflow  # noqa: F401  the binding needs its libraries
    from tensorflow.python.util import _pywrap_transform_graph as tool

    def call(content: bytes, inputs: list[str], outputs: list[str], text: str) -> bytes:
        names = (",".join(names).encode() for names in (inputs, outputs))
        result: bytes = tool.TransformGraphWithStringInputs(content, *names, text.encode())
        return result

    return call


def serve(side: str, path: str, inputs: str, outputs: str) -> None:
    """Answer each transform string with the seconds that it took."""
    content = Path(path).read_bytes()
    call = _ours if side == "ours" else _tool()
    for line in sys.stdin:
        start = time.perf_counter()
        call(content, inputs.split(","), outputs.split(","), line.strip())
        print(time.perf_counter() - start, flush=True)


def peak(path: str, inputs: str, outputs: str, text: str) -> float:
    """Return the most memory that a transform takes beyond the loaded graph, in file sizes."""
    graph_def = GraphDef.FromString(Path(path).read_bytes())
    graph = Graph.from_graph_def(graph_def, inputs.split(","), outputs.split(","))
    del graph_def
    Path("/proc/self/clear_refs").write_text("5")  # from here on the peak counts anew
    before = _status("VmRSS")
    transform(graph, text)
    return (_status("VmHWM") - before) / Path(path).stat().st_size


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{field}:"))
    return int(line.split()[1]) << 10


if __name__ == "__main__":
    if sys.argv[1] == "memory":
        print(peak(*sys.argv[2:]))
    else:
        serve(*sys.argv[1:])
