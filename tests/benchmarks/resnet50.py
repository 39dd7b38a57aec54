"""Keras ResNet50, 98 MB, in whole processes: time and memory, beside the Graph Transform Tool.

`transform` runs the same three transforms in both; `optimize` has no peer.
"""

import sys
import tempfile
from pathlib import Path

from tests.benchmarks.figures import Figure
from tests.benchmarks.measuring import deploykit, in_turn, peak_with_children
from tests.benchmarks.nets import frozen_keras_net, interface_of

TRANSFORMS = "strip_unused_nodes fold_constants fold_batch_norms"
PEER_RATIO = 0.15  # of the original tool's time, and of its memory
ROUNDS = 7  # enough for a 95 % interval
SECONDS = 3.0
FILE_SIZES = 4  # of memory


def figures() -> list[Figure]:
    """Measure `transform` beside the original tool, and `optimize`, in turn."""
    model = frozen_keras_net("ResNet50")
    inputs, outputs = interface_of(model)
    with tempfile.TemporaryDirectory() as folder:
        result = str(Path(folder, "out.pb"))
        arguments = [f"--in_graph={model}", f"--out_graph={result}", "--force",
                     f"--inputs={inputs}", f"--outputs={outputs}"]  # fmt: skip
        tool = [sys.executable, "-m", "tests.benchmarks.original_tool"]
        commands = {
            "transform": deploykit("transform", *arguments, f"--transforms={TRANSFORMS}"),
            "tool": [*tool, str(model), result, inputs, outputs, TRANSFORMS],
            "optimize": deploykit("optimize", str(model), "-o", result, "--force"),
        }
        runs = in_turn(commands, rounds=ROUNDS)
        peaks = [
            [peak_with_children(commands[name]) for _ in range(3)] for name in ("transform", "tool")
        ]
    seconds = {name: [run.seconds for run in each] for name, each in runs.items()}
    memory = {name: [run.mebibytes for run in each] for name, each in runs.items()}
    most = FILE_SIZES * model.stat().st_size / (1 << 20)
    return [
        Figure("transform", "s", seconds["transform"], seconds["tool"],
               at_most_ratio=PEER_RATIO),
        Figure("... its peak memory with children", "MiB", *peaks, at_most_ratio=PEER_RATIO),
        Figure("optimize", "s", seconds["optimize"], at_most=SECONDS),
        Figure("... its peak memory", "MiB", memory["optimize"], at_most=most),
    ]  # fmt: skip
