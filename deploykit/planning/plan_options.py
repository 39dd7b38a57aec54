"""What a plan is asked for; nothing heavy is imported."""

import os
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from deploykit.storage.parameters import takes_former_names
from deploykit.transforms.core.display.flag import MOST_INT64, Flag
from deploykit.transforms.core.engines.engines import MOST_BATCH
from deploykit.transforms.core.errors import Error
from deploykit.verification.public_types import PreprocessLike

NOTHING, REPLICA, ZONE = LOSSES = ("nothing", "replica", "zone")
MOST_REPLICAS = 1000


@takes_former_names
@dataclass(frozen=True)
class PlanOptions:
    """Which load is to be borne, by what, and how one replica is measured."""

    HEADING: ClassVar = "Plan"

    rate: Annotated[float | None, Flag(metavar="CALLS", above=0, is_required=True)] = None
    """Calls a second that all replicas together get."""
    latency_limit: Annotated[
        float | None,
        Flag(hidden="--p99", formerly="p99_ms", metavar="MS", above=0, is_required=True),
    ] = None
    """Milliseconds within which 99 % of the calls are to be answered."""
    replicas: Annotated[tuple[int, int], Flag(format="span", at_least=1, at_most=1000000)] = (
        1,
        MOST_REPLICAS,
    )
    """The fewest and the most replicas to plan with."""
    survive: Literal["nothing", "replica", "zone"] = "nothing"
    """What may be lost while 99 % of the calls stay within the limit: plan so many replicas
    more."""
    zones: int = 3
    """Zones over which the replicas are spread evenly."""
    cores: int | None = None
    """Cores of one replica [default: those of the server, if it runs on this machine, or as many as
    the calls that it computes at the same time]."""
    price: Annotated[float | None, Flag(metavar="AMOUNT", above=0)] = None
    """What one replica costs for an hour, to show the cost of the plan."""
    manifests: Annotated[str | os.PathLike[str] | None, Flag(metavar="DIR")] = None
    """Fill the numbers of replicas into kubernetes.yaml and kserve.yaml in this folder, which
    deploykit export `manifests` wrote; all else in them stays."""
    version: Annotated[int | None, Flag(at_least=0, at_most=MOST_INT64, heading="Server")] = None
    """Version of the model [default: the newest]."""
    version_label: Annotated[str, Flag(metavar="LABEL", heading="Server")] = ""
    """Choose the version by its label, such as stable."""
    signature: Annotated[str | None, Flag(metavar="NAME", heading="Server")] = None
    """Signature of the model [default: serving_default, or the only one]."""
    preprocess: Annotated[
        PreprocessLike | None, Flag(metavar="FILE.json|LO..HI", heading="Data")
    ] = None
    """How the features of files become inputs, such as the size of images and the range of their
    values: a file, its JSON, or the range alone (0..1, -1..1, 0..255, photo=0..1) [default: what is
    kept beside the model, or what the model itself says]."""
    batch: Annotated[int, Flag(at_most=MOST_BATCH, heading="Measurement")] = 1
    """Samples in each call."""
    seconds: Annotated[float, Flag(metavar="S", above=0, heading="Measurement")] = 5
    """How long each load lasts; there are some 36 of them."""
    processes: Annotated[int, Flag(at_most=64, heading="Measurement")] = 1
    """Processes that send the calls, up to 64, if one cannot send enough."""

    def check(self) -> None:
        """Raise Error for what cannot be planned."""
        for name, value in (("rate", self.rate), ("latency-limit", self.latency_limit)):
            if value is None:
                raise Error("option-needs", option="a plan", needed=f"a {name} (--{name})")
            if not value > 0:
                raise Error(
                    "out-of-range",
                    name=f"the {name} (--{name})",
                    expected="above 0",
                    got=f"{value:g}",
                )
        low, high = self.replicas
        if not 1 <= low <= high:
            raise Error("plan-replicas-range", low=low, high=high)
        if self.survive not in LOSSES:
            raise Error("not-one-of", what="survive", known=LOSSES, got=self.survive)
        if self.zones < 1:
            raise Error(
                "out-of-range",
                name="the number of zones (--zones)",
                expected="1 or more",
                got=self.zones,
            )
