"""The stages of shipping, in their order."""

from deploykit.shipping.stage import ShipStage
from deploykit.shipping.stages.exported_version import EXPORT
from deploykit.shipping.stages.graphs import CALIBRATE, CHECK, OPTIMIZE, QUANTIZE
from deploykit.shipping.stages.proofs import ACCURACY, VERIFY
from deploykit.shipping.stages.request import SERVE
from deploykit.shipping.stages.speed import BENCHMARK, PLACEMENT, TUNE

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
