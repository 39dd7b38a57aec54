"""Real models with every layer in int8: what they keep on samples that calibrated nothing."""

import functools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import deploykit
from deploykit.pipelines.int8 import codes_graph, int8_graph
from deploykit.pipelines.transform import PREPARE_LAYERS
from deploykit.quantization.accuracy import Evaluator
from deploykit.quantization.calibrated_graph import prepare
from deploykit.quantization.rounding import round_layers
from deploykit.storage.arrays import load_data
from deploykit.transforms.int8.plan import plan
from deploykit.transforms.int8.ranges import load_ranges
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.session import Session
from deploykit.verification.samples import Dataset
from tests import pairwise
from tests.int8_cpus import needs_exact_sums
from tests.real.conftest import made_by
from tests.real.encoder import FORMS

pytestmark = pytest.mark.sampled


def in_int8(graph: Graph, data: Mapping[str, Array], folder: Path) -> tuple[Graph, Graph, Graph]:
    """Return a graph with all layers in int8: the nearest weights, rounded ones, and in codes."""
    feeds, path = Dataset.of(graph, data).feeds(), str(folder / "ranges.json")
    prepared, _ = prepare(graph, feeds, path)
    found, notes = round_layers(prepared, feeds, path, isa="vnni")
    assert not notes
    assert len(found) == len(plan(prepared, load_ranges(path)).chains)
    return (
        int8_graph(prepared, path, "vnni"),
        int8_graph(prepared, path, "vnni", (), found),
        codes_graph(prepared, path, "vnni", (), found),
    )


def efficientnet_lite0(folder: Path) -> None:
    graph = deploykit.optimize(
        deploykit.load_graph(made_by("efficientnet_lite0/build.py") / "frozen.pb")
    )
    pictures = made_by("pictures/fetch.py")
    nearest, rounded, codes = in_int8(graph, load_data(pictures / "calibration.npz"), folder)
    held_out = load_data(pictures / "heldout.npz")
    few = Dataset.of(graph, {name: array[:143] for name, array in held_out.items()})
    with Evaluator(graph, few.feeds()) as judge:
        before, after = judge.judge(nearest), judge.judge(rounded)
        emulated = judge.judge(codes)
    assert after.sqnr_db > before.sqnr_db + 2
    assert after.certain_db >= 24.5
    assert abs(emulated.sqnr_db - after.sqnr_db) < 0.5


def hidden_of(graph: Graph, feeds: list[dict[str, Array]]) -> Array:
    """Return the last hidden state of all tokens that the mask keeps, [tokens, width]."""
    (name,) = [each for each in graph.outputs if "hidden" in each]
    session, found = Session(b"".join(graph.serialized())), []
    for feed in feeds:
        (mask,) = [array for key, array in feed.items() if "mask" in key]
        found.append(session.run([name], feed)[0][mask.astype(bool)])
    return np.concatenate(found)


def mini_lm(form: str, folder: Path) -> None:
    made = made_by("minilm/build.py")
    graph = deploykit.optimize(deploykit.freeze(made / form))
    graph = deploykit.transform(graph, PREPARE_LAYERS)
    nearest, rounded, _ = in_int8(graph, load_data(made / "calibration.npz"), folder)
    for name in ("held_out", "other"):
        feeds = Dataset.of(graph, load_data(made / f"{name}.npz")).feeds()
        exact = hidden_of(graph, feeds)
        noise = [((hidden_of(each, feeds) - exact) ** 2).sum() for each in (nearest, rounded)]
        before, after = 10 * np.log10((exact**2).sum() / np.array(noise))
        assert after > before
        assert after >= 25.7


CHECKS = (efficientnet_lite0, *(functools.partial(mini_lm, form) for form in FORMS))


@needs_exact_sums
@pytest.mark.parametrize(
    "check", pairwise.drawn(__name__, CHECKS, 1), ids=["EfficientNet-Lite0", *FORMS]
)
def test_real_models(check, tmp_path):
    check(tmp_path)
