"""The stages of shipping, in their order."""

from deploykit.shipping.shipment import ShipStage
from deploykit.shipping.stages.exported_version import EXPORT
from deploykit.shipping.stages.graphs import CALIBRATE, CHECK, OPTIMIZE, QUANTIZE
from deploykit.shipping.stages.proofs import ACCURACY, DESCRIBE, VERIFY, loses_too_much
from deploykit.shipping.stages.request import SERVE
from deploykit.shipping.stages.speed import BENCHMARK, PLACEMENT, TUNE

__all__ = ["DESCRIBE", "NAMES", "STAGES", "loses_too_much"]

STAGES: tuple[ShipStage, ...] = (
    CHECK,
    OPTIMIZE,
    CALIBRATE,
    QUANTIZE,
    VERIFY,
    ACCURACY,
    PLACEMENT,
    TUNE,
    BENCHMARK,
    EXPORT,
    SERVE,
)
NAMES = tuple(stage.name for stage in STAGES)
