"""How long models are measured, or how often they are called, or in which scenario."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from deploykit.benchmarking.settings import SECONDS, RunConfig
from deploykit.hardware.machine import usable_cores
from deploykit.transforms.core.display.flag import Flag
from deploykit.transforms.core.errors import GraphError

SINGLE, OFFLINE, SERVER = ("single", "offline", "server")


@dataclass(frozen=True)
class BenchmarkOptions:
    """How long, how often, or in which scenario models are measured."""

    HEADING: ClassVar = "Measuring"

    seconds: Annotated[float, Flag(hidden="--duration", metavar="SECONDS", above=0)] = SECONDS
    """Longest time to measure each model with each setting."""
    runs: int | None = None
    """Measure this many calls instead of `seconds`."""
    rounds: Annotated[int | None, Flag(is_python_only=True)] = None
    """Turns into which `runs` are divided (20), or of each style of input (5)."""
    scenario: Literal["single", "offline", "server"] | None = None
    """Measure each model alone, as MLPerf does: one request after another (single), all samples
    (offline), or requests at random times (server)."""
    rate: Annotated[float | None, Flag(metavar="CALLS", above=0)] = None
    """Requests per second in scenario server."""
    latency_limit: Annotated[float | None, Flag(metavar="MS", above=0)] = None
    """In scenario server, the result is only valid if p99 is within this limit."""

    def check(self) -> None:
        """Raise GraphError where options contradict each other."""
        if self.scenario == SERVER and self.rate is None:
            raise GraphError(
                "option-needs",
                option="scenario server",
                needed="a rate (--rate): the calls that arrive in a second",
            )
        for name, value in (("rate", self.rate), ("latency limit", self.latency_limit)):
            if value is not None and self.scenario != SERVER:
                raise GraphError("only-for", option=f"the {name}", what="scenario server")
        if self.scenario and not (self.runs is None and self.rounds is None):
            raise GraphError("scenario-needs-duration")

    def settings(self, given: RunConfig, *, chosen: bool) -> RunConfig:
        """Return settings with the calls in flight of the scenario, unless the user chose them."""
        if self.scenario == SINGLE and given.concurrency > 1:
            raise GraphError("scenario-single-concurrency", concurrency=given.concurrency)
        if self.scenario not in (OFFLINE, SERVER) or chosen or given.concurrency > 1:
            return given
        return replace(given, concurrency=usable_cores())
