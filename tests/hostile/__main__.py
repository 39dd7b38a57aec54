"""python -m tests.hostile [CLASS...]: drive the commands over the cases, and print a table."""

import argparse
import contextlib
import itertools
import json
import re
import shutil
import tempfile
from collections.abc import Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.hostile.asking import ParsedRequest
from tests.hostile.case import Case
from tests.hostile.commands import ADDRESS, SECONDS, commands
from tests.hostile.corpus import cases
from tests.hostile.judging import Verdict, judge
from tests.hostile.runner import Runner
from tests.hostile.watching import MIB, Place, run

DEADLINE = 3 * SECONDS
AGAIN = (
    "tune",
)  # they start a model in one process after another, which takes long if it is large
LONGER = 4  # times: how much more time they have then
SERVED = ("warmup", "settings", "asked")  # which a server alone opens


def main() -> int:
    """Print what each command does with each case; 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="CLASS", help="only these classes")
    parser.add_argument("--commands", help="only these, with commas between them")
    parser.add_argument("--case", help="only cases whose name contains this")
    parser.add_argument("--jobs", type=int, default=2, help="cases at the same time")
    parser.add_argument("--fast", action="store_true",
                        help="all command lines in one process, and no heavy cases")  # fmt: skip
    parser.add_argument("--json", type=Path, help="write each verdict to this file, a line each")
    given = parser.parse_args()
    chosen = [
        case for case in cases()
        if (not given.kinds or case.kind in given.kinds) and (given.case or "") in case.name
    ]  # fmt: skip
    wanted = set(given.commands.split(",")) if given.commands else None
    verdicts: list[Verdict] = []
    runner = Runner() if given.fast else None
    if runner is not None:
        chosen = [case for case in chosen if not case.heavy and case.opened_as not in SERVED]
    with contextlib.ExitStack() as stack:
        if runner is not None:
            stack.callback(runner.close)
        lines = stack.enter_context(given.json.open("w")) if given.json else None
        pool = stack.enter_context(ThreadPoolExecutor(1 if runner else given.jobs))
        for found in pool.map(lambda case: list(drive(case, wanted, runner)), chosen):
            for verdict in found:
                verdicts.append(verdict)
                show(verdict)
                if lines:
                    lines.write(json.dumps(as_line(verdict)) + "\n")
                    lines.flush()
    print(table(verdicts))
    return int(any(verdict.faults for verdict in verdicts))


def drive(
    case: Case, wanted: Container[str] | None = None, runner: Runner | None = None
) -> Iterator[Verdict]:
    """Yield what each command does with a case; with a runner, in its process."""
    root = Path(tempfile.mkdtemp(prefix="hostile-"))
    asked = ParsedRequest() if case.opened_as == "asked" else None
    address = asked.server.address if asked else ""
    try:
        place = Place(root)
        opened = str(case.make(place.case) or next(place.case.iterdir()))
        for name, line in commands(case.opened_as, opened, place.goods, place.out).items():
            if wanted is None or name in wanted:
                before = place.listing()
                is_long = case.heavy and name in AGAIN
                deadline = LONGER * DEADLINE if is_long else DEADLINE
                line = [address if each == ADDRESS else each for each in line]
                if runner is not None:
                    ended = runner.run(line, place, deadline)
                else:
                    ended = run(line, place, deadline, served() if name == "serve" else None)
                yield judge(case, name, ended, place, before, opened)
                clean(place)
    finally:
        if asked:
            asked.close()
        shutil.rmtree(root, ignore_errors=True)


def served():
    """Return what says when a server has told what it has loaded, so that it may end."""

    def is_told(said: str, seconds: float) -> bool:
        loaded = "did not become available" in said or re.search(r"^serving .*: \d", said, re.M)
        return bool(loaded) or seconds > SECONDS

    return is_told


def clean(place: Place) -> None:
    """Take away what a command has left, so that the next one is judged by itself."""
    for folder in (place.out, place.temporary, place.home, place.root / "canary"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()


def show(verdict: Verdict) -> None:
    """Print a line for what is wrong."""
    for fault in verdict.faults:
        print(f"{verdict.case.id} | {verdict.command} | {fault}", flush=True)
    if verdict.named is False:
        said = verdict.ended.err.strip().splitlines()
        print(f"{verdict.case.id} | {verdict.command} | unnamed: "
              f"{said[-1][:200] if said else 'it said nothing'}", flush=True)  # fmt: skip


def as_line(verdict: Verdict) -> dict[str, object]:
    """Return a verdict as plain data."""
    return {
        "case": verdict.case.id, "command": verdict.command, "status": verdict.ended.status,
        "faults": verdict.faults, "named": verdict.named, "factor": verdict.factor,
        "seconds": verdict.ended.seconds, "mib": verdict.ended.memory // MIB,
        "family_mib": verdict.ended.family // MIB, "said": verdict.ended.err[-500:],
    }  # fmt: skip


def table(verdicts: list[Verdict]) -> str:
    """Return figures by class and command."""
    head = ("class", "command", "cases", "right", "named", "memory", "slowest", "faults")
    rows = [head]
    by_row = sorted(verdicts, key=lambda each: (each.case.kind, each.command))
    for key, group in itertools.groupby(by_row, lambda each: (each.case.kind, each.command)):
        rows.append((*key, *figures(list(group))))
    rows.append(("all", "", *figures(verdicts)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def figures(verdicts: list[Verdict]) -> tuple[str, ...]:
    """Return the figures of a row."""
    named = [each.named for each in verdicts if each.named is not None]
    kinds = sorted({kind for each in verdicts for kind in each.kinds})
    return (
        str(len(verdicts)),
        str(sum(not each.faults for each in verdicts)),
        f"{sum(named)}/{len(named)}",
        f"{max((each.factor for each in verdicts), default=0):.1f}x",
        f"{max((each.ended.seconds for each in verdicts), default=0):.1f} s",
        " ".join(kinds),
    )


if __name__ == "__main__":
    raise SystemExit(main())
