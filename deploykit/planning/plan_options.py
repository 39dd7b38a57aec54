"""What a plan is asked for; nothing heavy is imported."""

import os
from dataclasses import dataclass
from typing import Any

from deploykit.transforms.core.errors import Error

NOTHING, REPLICA, ZONE = LOSSES = ("nothing", "replica", "zone")
MOST_REPLICAS = 1000


@dataclass(frozen=True)
class PlanOptions:
    """Which load is to be borne, by what, and how one replica is measured."""

    rate: float | None = None
    """Calls a second that all replicas together get; it has to be given."""
    p99_ms: float | None = None
    """Milliseconds within which 99 % of them are to be answered; it has to be given."""
    replicas: tuple[int, int] = (1, MOST_REPLICAS)
    """The fewest and the most that may be planned."""
    survive: str = NOTHING
    """What may be lost while p99 holds: `nothing`, one `replica`, or a `zone`."""
    zones: int = 3
    """Zones over which replicas are spread evenly."""
    cores: int | None = None
    """Of one replica; default: those of the server, if it runs on this machine, or as many as the
    calls that it computes at once."""
    price: float | None = None
    """Of one replica for an hour, in any currency."""
    manifests: str | os.PathLike[str] | None = None
    """A folder of `export --manifests`, in whose Kubernetes and KServe files the numbers of
    replicas are filled."""
    version: int | None = None
    """Of the model; default: the newest."""
    version_label: str = ""
    """The label of the version instead, such as `stable`."""
    signature: str | None = None
    """Default: `serving_default`, or the only one."""
    preprocess: Any = None
    """What becomes of the samples."""
    batch: int = 1
    """Samples in a call."""
    seconds: float = 5
    """How long each load lasts while the server is measured."""
    processes: int = 1
    """Processes that send the calls, where one cannot make the load."""

    def check(self) -> None:
        """Raise Error for what cannot be planned."""
        for name, value in (("rate", self.rate), ("p99", self.p99_ms)):
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
