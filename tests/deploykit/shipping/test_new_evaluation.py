"""Int8 that loses too much on new evaluation data is searched for again."""

import numpy as np

import deploykit
from tests.support import random, run

LOST = 0.02


def test_a_drop_above_the_limit_on_new_data_quantizes_again(tmp_path, quick, net):
    model, folder = net, tmp_path / "net.ship"
    options = {"calibration": {"x": random(64, 32)}, "max_drop": LOST, "name": "net",
               "engine": "tensorflow"}  # fmt: skip
    x = random(6000, 32, seed=7)
    right = run(model, {"x": x})[0].argmax(1)

    def shipped(rows):
        data = {"x": x[rows], "labels": right[rows]}
        found = deploykit.ship(model, folder, evaluation=data, **options)
        return {each.stage: each for each in found.stages}, found.facts.get("precision")

    stages, precision = shipped(np.arange(64))
    assert (precision, stages["quantize"].kept) == ("int8", False)
    int8 = run(deploykit.open_model(folder / "model.pb").graph, {"x": x})[0].argmax(1)
    same, other = np.flatnonzero(int8 == right), np.flatnonzero(int8 != right)
    assert len(other) >= 8
    stages, _ = shipped(same[100:164])  # other data, on which nothing is lost
    assert (stages["quantize"].kept, stages["accuracy"].kept) == (True, False)
    stages, _ = shipped(np.concatenate([other[:8], same[:56]]))
    assert (stages["quantize"].kept, stages["accuracy"].kept) == (False, False)
    first, last = (stages["accuracy"].outcome.document["models"][n]["value"] for n in (0, -1))
    assert first - last <= LOST
