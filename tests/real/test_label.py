"""`deploykit label` on EfficientNet-Lite0 names what 20 photos show."""

import json
import subprocess
import sys

import numpy as np
import pytest

import deploykit
from deploykit.client.call_options import LabelOptions
from deploykit.client.label_image import image_input, open_image, run_on_image
from tests.real.conftest import MODELS

pytestmark = pytest.mark.sampled


@pytest.fixture(scope="module")
def files(photos):
    """Return the photos by class number, as pairs of path and number."""
    paths = sorted((MODELS / "photos" / "fetched").glob("*.jpg"))
    assert len(paths) == 20
    return [(path, int(path.stem.rsplit("_", 1)[1])) for path in paths]


def test_photos(files, efficientnet_lite0):
    """Whole photos are squeezed into a square, as label_image does; of their middles, 17 and 20."""
    graph = deploykit.freeze(efficientnet_lite0 / "frozen.pb", outputs=["probabilities"])
    taken_as = image_input(graph, LabelOptions(input_mean=127, input_std=128))
    assert (taken_as.steps.resize, taken_as.steps.channels) == ((224, 224), 3)
    graph_def = b"".join(graph.serialized())
    first = fifth = 0
    for path, truth in files:
        found = run_on_image(graph_def, open_image(path), taken_as, "probabilities")[0]
        order = np.argsort(-found)
        first += order[0] == truth
        fifth += truth in order[:5]
    assert (first, fifth) == (18, 19)


def test_the_command(files, efficientnet_lite0, tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("".join(f"number {n}\n" for n in range(1000)))
    path, truth = files[2]
    command = [
        sys.executable, "-m", "deploykit", "label", path, "--labels", labels, "--json",
        "--model", efficientnet_lite0 / "saved_model", "--input_mean=127", "--input_std=128",
        "--output_layer=probabilities",
    ]  # fmt: skip
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    best = json.loads(done.stdout)["predictions"][0]
    assert (best["class"], best["label"]) == (truth, f"number {truth}")
    assert done.stderr.startswith("deploykit: images: photos ")
    assert done.stderr.endswith("-0.992188..1 (from --input_mean and --input_std)\n")
    assert done.stderr.count("\n") == 1
