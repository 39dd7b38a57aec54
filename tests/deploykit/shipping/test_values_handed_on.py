"""Stages hand values on: no graph, no samples and no ranges are made twice in a run."""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import deploykit
from deploykit.data import samples
from deploykit.importers import graph_files
from deploykit.quantization import calibration
from deploykit.shipping.shipment import EIGHT_BITS_FILE, FROZEN, OPTIMIZED_FILE
from deploykit.storage import arrays
from deploykit.storage.ship_report import MODEL
from tests.support import random

GRAPHS = (FROZEN, OPTIMIZED_FILE, EIGHT_BITS_FILE, MODEL)


class Calls:
    """Counts what a run reads and calibrates, as Python's profiler sees it, whoever asks."""

    def __init__(self) -> None:
        self.graphs, self.data, self.calibrations = Counter[str](), Counter[str](), 0
        self._counted = {
            graph_files._loaded.__code__: lambda given: self.graphs.update([Path(given["path"])]),
            arrays.load_data.__code__: lambda given: self.data.update([Path(given["path"]).name]),
            samples._read.__code__: lambda given: self.data.update([given["pipeline"].data.path]),
            calibration._observed_in.__code__: self._calibrated,
        }

    def _calibrated(self, given: object) -> None:
        self.calibrations += 1

    def _saw(self, frame, event, argument) -> None:
        if event == "call" and (counted := self._counted.get(frame.f_code)) is not None:
            counted(frame.f_locals)

    def __enter__(self) -> "Calls":
        sys.setprofile(self._saw)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


@pytest.mark.sampled
@pytest.mark.usefixtures("quick")
def test_each_value_is_made_once(tmp_path, net):
    folder = tmp_path / "net.ship"
    paths = [str(tmp_path / f"{name}.npz") for name in ("calibration", "evaluation")]
    x, labels = random(64, 32), np.arange(64) % 8
    np.savez(paths[0], x=x)
    np.savez(paths[1], x=x, labels=labels)
    options = {"max_drop": 1.0, "engine": "tensorflow", "allow_low_accuracy": True}
    with Calls() as calls:
        found = deploykit.ship(
            net, folder, calibration=paths[0], evaluation=paths[1], name="net", **options
        )
    assert found.facts["precision"] == "int8"
    assert calls.graphs == {folder / name: 1 for name in GRAPHS}
    assert calls.data == {"calibration.npz": 1, "evaluation.npz": 1}
    assert calls.calibrations == 1
    with Calls() as again:
        deploykit.ship(
            net, folder, calibration=paths[0], evaluation=paths[1], name="net", **options
        )
    assert max(again.graphs.values()) == 1, "what the plan reads, the run does not read again"
    assert again.calibrations == 0
