"""How many replicas a load takes, for people."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deploykit.text.tables import Table, new_table, number

_LOST = {"nothing": "all there", "replica": "one lost", "zone": "zone lost"}
_SMALL = 1000
"""Calls of which a 99th percentile says little."""


def lines(found: Mapping[str, Any]) -> Iterator[str | Table]:
    """Yield the document of a plan: what was measured, the answer, and what may go wrong."""
    measured = found["measured"]
    yield (
        f"one replica ({measured['source']}): {number(measured['highest_rate'])} calls/s at most, "
        f"{_counted(measured['slots'], 'call')} at a time"
    )
    yield (
        f"a lone call takes {_ms(measured['lone_p50_ms'])} (p99 {_ms(measured['lone_p99_ms'])}); "
        f"each call that comes holds up what is computed by {_ms(measured['front_end_ms'])}"
    )
    if not found["problem"]:
        yield (
            f"{number(found['rate'])} calls/s with p99 within {number(found['p99_limit_ms'])} ms: "
            f"{_counted(found['replicas'], 'replica')} of {_counted(found['cores'], 'core')}"
        )
    yield _outcomes(found["outcomes"])
    yield from _more(found)
    if found["check"]:
        yield _check(found["check"])
    else:
        yield "not compared with a server"
    yield from (f"note: {each}" for each in found["notes"])
    yield from (f"filled {each}" for each in found["filled"])


def _outcomes(outcomes: Sequence[Mapping[str, Any]]) -> Table:
    table = new_table("with", "replicas", "load", "p99 ms", "range", "least busy", "holds",
                      texts=("range",))  # fmt: skip
    for each in outcomes:
        load = "-" if each["load"] is None else f"{100 * each['load']:.0f} %"
        known = each["p99_ms"] is not None
        p99 = number(each["p99_ms"]) if known else "too much"
        low, high = each["p99_low_ms"], each["p99_high_ms"]
        between = f"{number(low)} to {number(high)}" if known else "-"
        together = each["p99_least_busy_ms"]
        table.add_row(
            _LOST[each["lost"]],
            str(each["replicas"]),
            load,
            p99,
            between,
            "-" if together is None else number(together),
            "yes" if each["holds"] else "no",
        )
    return table


def _more(found: Mapping[str, Any]) -> Iterator[str]:
    if found["rate_of_one"]:
        above = found["highest_rate"] / found["rate"] - 1
        yield (
            f"headroom: {number(found['highest_rate'])} calls/s are within the limit "
            f"({100 * above:+.0f} %), {number(found['rate_of_one'])} for each replica"
        )
    needed = found["needed"]
    told = [
        f"{needed[lost] or 'no number of'} when a {lost} is lost"
        for lost in ("replica", "zone")
        if needed["nothing"]
    ]
    if told:
        zones = f" (of {found['zones']})"
        yield f"replicas that hold: {needed['nothing']}, {', '.join(told)}{zones}"
    if cost := found["cost"]:
        yield (
            f"cost: {cost['hour']:,.2f} an hour, {cost['month']:,.0f} a month, "
            f"{number(cost['million_calls'])} for a million calls"
        )


def _check(check: Mapping[str, Any]) -> str:
    runs = [each["p99_ms"] for each in check["runs"]]
    between = f" ({number(min(runs))} to {number(max(runs))} in {len(runs)} runs)"
    few = "; so few calls say little" if check["calls"] < _SMALL else ""
    failed = f", {check['failed']} failed" if check["failed"] else ""
    return (
        f"compared at {number(check['rate'])} calls/s to one replica: p99 "
        f"{number(check['p99_ms'])} ms{between if len(runs) > 1 else ''} of {check['calls']:,} "
        f"calls{failed}; foreseen for the same arrivals: {number(check['foreseen_ms'])} ms "
        f"({check['ratio']:.2f}){few}"
    )


def _ms(value: float) -> str:
    return f"{number(value)} ms"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
