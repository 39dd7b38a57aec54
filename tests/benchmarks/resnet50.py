"""Keras ResNet50, 98 MB, in whole processes: time and memory, beside the Graph Transform Tool.

`transform` runs the same three transforms in both; `optimize` has no peer.
"""

import json
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.figures import RESULTS, Figure
from tests.benchmarks.measuring import deploykit, in_turn, run

TRANSFORMS = "strip_unused_nodes fold_constants fold_batch_norms"
PEER_RATIO = 0.5  # of the original tool's time, and of its memory
SECONDS = 3.0
FILE_SIZES = 4  # of memory

MODEL = RESULTS / "models" / "resnet50.frozen.pb"


def figures() -> list[Figure]:
    """Measure `transform` beside the original tool, and `optimize`, in turn."""
    if not MODEL.exists():
        _make_model()
    ends = json.loads(run(deploykit("inspect", str(MODEL), "--json")).output)
    inputs, outputs = (",".join(ends[role]) for role in ("inputs", "outputs"))
    with tempfile.TemporaryDirectory() as folder:
        result = str(Path(folder, "out.pb"))
        arguments = [f"--in_graph={MODEL}", f"--out_graph={result}", "--force",
                     f"--inputs={inputs}", f"--outputs={outputs}"]  # fmt: skip
        tool = [sys.executable, "-m", "tests.benchmarks.original_tool"]
        runs = in_turn(
            {
                "transform": deploykit("transform", *arguments, f"--transforms={TRANSFORMS}"),
                "tool": [*tool, str(MODEL), result, inputs, outputs, TRANSFORMS],
                "optimize": deploykit("optimize", str(MODEL), "-o", result, "--force"),
            }
        )
    seconds = {name: [run.seconds for run in each] for name, each in runs.items()}
    memory = {name: [run.mebibytes for run in each] for name, each in runs.items()}
    most = FILE_SIZES * MODEL.stat().st_size / (1 << 20)
    return [
        Figure("transform", "s", seconds["transform"], seconds["tool"],
               at_most_ratio=PEER_RATIO),
        Figure("... its peak memory", "MiB", memory["transform"], memory["tool"],
               at_most_ratio=PEER_RATIO),
        Figure("optimize", "s", seconds["optimize"], at_most=SECONDS),
        Figure("... its peak memory", "MiB", memory["optimize"], at_most=most),
    ]  # fmt: skip


def _make_model() -> None:
    """Write the frozen graph once; what comes later finds it."""
    MODEL.parent.mkdir(parents=True, exist_ok=True)
    keras_file = MODEL.with_name("resnet50.keras")
    run([sys.executable, "-m", __name__, str(keras_file)])
    run(deploykit("freeze", str(keras_file), "-o", str(MODEL)))
    keras_file.unlink()


def save_keras_model(path: str) -> None:
    """Save ResNet50 with random weights and random batch norms: fresh ones do nothing."""
    import keras
    import numpy as np

    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    model = keras.applications.ResNet50(weights=None)
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            for value, low, high in (
                (layer.gamma, 0.5, 1.5),
                (layer.beta, -0.3, 0.3),
                (layer.moving_mean, -0.3, 0.3),
                (layer.moving_variance, 0.5, 2.0),
            ):
                value.assign(random.uniform(low, high, value.shape))
    model.save(path)


if __name__ == "__main__":
    save_keras_model(sys.argv[1])
