"""Options of a plan. This module imports nothing heavy."""

import os
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from deploykit.storage.parameters import takes_former_names
from deploykit.transforms.common.errors import Error
from deploykit.transforms.common.flag import MAX_INT64, Flag
from deploykit.transforms.engines.engines import MAX_BATCH
from deploykit.verification.samples import PreprocessLike

NOTHING, REPLICA, ZONE = LOSSES = ("nothing", "replica", "zone")
MAX_REPLICAS = 1000


@takes_former_names
@dataclass(frozen=True)
class PlanOptions:
    """Options of a plan: target load, allowed replicas, and measurement of one replica."""

    HEADING: ClassVar = "Plan"

    rate: Annotated[float | None, Flag(metavar="CALLS", above=0, is_required=True)] = None
    """Requests per second to all replicas together."""
    latency_limit: Annotated[
        float | None,
        Flag(hidden="--p99", formerly="p99_ms", metavar="MS", above=0, is_required=True),
    ] = None
    """Limit on p99 latency."""
    replicas: Annotated[tuple[int, int], Flag(format="span", at_least=1, at_most=1000000)] = (
        1,
        MAX_REPLICAS,
    )
    """Smallest and largest number of replicas to consider."""
    tolerate: Annotated[
        Literal["nothing", "replica", "zone"], Flag(hidden="--survive", formerly="survive")
    ] = "nothing"
    """Failure to tolerate: plan enough spare replicas to keep p99 within the limit."""
    zones: int = 3
    """Number of zones; replicas are spread evenly over them."""
    cores: int | None = None
    """Cores per replica [default: those of the server if it runs on this machine, else the number
    of requests that it runs at once]."""
    price: Annotated[float | None, Flag(metavar="AMOUNT", above=0)] = None
    """Price of one replica per hour, to show the cost of the plan."""
    manifests: Annotated[str | os.PathLike[str] | None, Flag(metavar="DIR")] = None
    """Set the number of replicas in kubernetes.yaml and kserve.yaml in this folder, which deploykit
    export `manifests` wrote; nothing else is changed."""
    version: Annotated[int | None, Flag(at_least=0, at_most=MAX_INT64, heading="Server")] = None
    """Version of the model [default: the newest]."""
    version_label: Annotated[str, Flag(metavar="LABEL", heading="Server")] = ""
    """Choose the version by its label, such as stable."""
    signature: Annotated[str | None, Flag(metavar="NAME", heading="Server")] = None
    """Signature of the model [default: serving_default, or the only one]."""
    preprocess: Annotated[
        PreprocessLike | None, Flag(metavar="FILE.json|LO..HI", heading="Data")
    ] = None
    """Preprocessing of file features into model inputs, such as image size and value range: a JSON
    file, JSON text, or only the range (0..1, -1..1, 0..255, photo=0..1) [default: from the model
    metadata file X.pb.json, or from the model itself]."""
    batch: Annotated[int, Flag(at_most=MAX_BATCH, heading="Measurement")] = 1
    """Samples per request."""
    seconds: Annotated[float, Flag(metavar="S", above=0, heading="Measurement")] = 5
    """Duration of each load in seconds; about 36 loads are measured."""
    processes: Annotated[int, Flag(at_most=64, heading="Measurement")] = 1
    """Client processes, up to 64; use more if one cannot send enough requests."""

    def check(self) -> None:
        """Raise Error for missing or invalid options."""
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
        if self.tolerate not in LOSSES:
            raise Error("not-one-of", what="tolerate", known=LOSSES, got=self.tolerate)
        if self.zones < 1:
            raise Error(
                "out-of-range",
                name="the number of zones (--zones)",
                expected="1 or more",
                got=self.zones,
            )
