"""Whether int8 loses too much on new evaluation data."""

from types import SimpleNamespace

import pytest

from deploykit.shipping.stages.graphs import loses_too_much


@pytest.mark.parametrize(
    ("metric", "values", "loses"),
    [
        ("top1", (0.9, 0.895), False),
        ("top1", (0.9, 0.8), True),
        ("mae", (0.1, 0.3), True),
        ("mae", (0.3, 0.1), False),
        ("mae", (0.1, float("nan")), True),
        ("top1", (float("nan"), 0.9), True),
    ],
)
def test_a_metric_that_is_nan_loses_too_much(metric, values, loses):
    documents = {
        "accuracy": {"metric": metric, "models": [{"value": value} for value in values]},
        "quantize": {},
    }
    shipment = SimpleNamespace(
        document=documents.get,
        results={"quantize": SimpleNamespace(kept=True), "accuracy": SimpleNamespace(kept=False)},
        how=SimpleNamespace(calibration="x.npz", max_drop=0.01),
        in_8_bits=True,
    )
    assert loses_too_much(shipment) == loses
