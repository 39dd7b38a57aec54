"""The answers that a user waits for most often."""

import tempfile
from pathlib import Path

from tests.benchmarks.figures import Figure
from tests.benchmarks.measuring import deploykit, in_turn

CHECKPOINT = Path(__file__).parents[2] / "models" / "fashion" / "tf1" / "model.ckpt"
AT_ONCE = 0.3  # seconds

TYPO = deploykit("transform", "--in_graph=a", "--out_graph=b", "--transforms=fold_constant")


def figures() -> list[Figure]:
    """Measure the commands in turn."""
    with tempfile.TemporaryDirectory() as folder:
        output = str(Path(folder, "out.pb"))
        runs = in_turn(
            {
                "deploykit --help": deploykit("--help"),
                "a typo in --transforms": TYPO,
                "quantize the TF1 Fashion checkpoint": deploykit(
                    "quantize", str(CHECKPOINT), "-o", output, "--force"
                ),
            },
            check=False,  # a typo is an error
        )
    bars = (AT_ONCE, AT_ONCE, None)
    return [
        Figure(name, "s", [run.seconds for run in each], at_most=bar)
        for (name, each), bar in zip(runs.items(), bars, strict=True)
    ]
