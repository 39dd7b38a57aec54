"""Which loads of a measurement a server held, and the generator: the others tell nothing of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from deploykit.calling.server_load import Load
from deploykit.text.serving import failures
from deploykit.transforms.core.errors import VerificationError

MOST_FAILED = 0.01
"""Of the calls."""
MOST_LATE = 0.1
"""Of the calls; where a server shares its cores with the generator, some are."""


@dataclass(frozen=True)
class HeldLoads:
    """The loads of each round up to the first one that tells nothing."""

    count: int
    why: str
    """What went wrong in the next one, in words; empty where all were held."""


def held(rounds: Sequence[Sequence[Load]], needed: int) -> HeldLoads:
    """Return how many loads of each round were held, from the least on.

    One is not that failed in most rounds, and not as a machine was busy. VerificationError: it is
    one of the first `needed`, without which nothing is known.
    """
    loads = list(zip(*rounds, strict=True))
    for number, alike in enumerate(loads):
        why, way_out = _refused(alike) or _limited(alike) or ("", "")
        if why and number < needed:
            raise VerificationError("plan-impossible", reason=why, advice=way_out)
        if why:
            return HeldLoads(number, why)
    return HeldLoads(len(loads), "")


def calls_of(load: Load) -> int:
    """Return how many calls a load made."""
    return sum(load.statuses.values())


def _refused(alike: Sequence[Load]) -> tuple[str, str] | None:
    failing = [each for each in alike if each.failed > MOST_FAILED * calls_of(each)]
    if len(failing) <= len(alike) / 2:
        return None
    worst = max(failing, key=lambda each: each.failed)
    return (
        f"{worst.failed} of {calls_of(worst)} requests failed at {worst.name} "
        f"({failures(worst.statuses)})",
        "let the server answer them all first",
    )


def _limited(alike: Sequence[Load]) -> tuple[str, str] | None:
    limited = [each for each in alike if _is_limited(each)]
    if len(limited) <= len(alike) / 2:
        return None
    return (
        f"the generator was the limit at {limited[0].name}, not the server",
        "give it more processes (--processes) or another machine",
    )


def _is_limited(load: Load) -> bool:
    """Say whether a load was its generator's limit; of those at random, some may be late."""
    return load.sent_late > MOST_LATE * calls_of(load) if load.rate else load.generator_limited
