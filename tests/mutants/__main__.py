"""python -m tests.mutants: plant simple mistakes in modules, and show which no test notices.

Exit status 0 means that all mutants were tried, whether tests killed them or not. It is 1 if tests
fail without a mutant.
"""

import argparse
import json
import queue
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.mutants.mutate import chosen, mutants
from tests.mutants.trying import Outcome, TreeCopy, UnmutatedError, own_tests, tried

ROOT = Path(__file__).parents[2]
MODULES = (
    "deploykit/batch_inference/results_folder.py",
    "deploykit/gating/verdict.py",
    "serving/execution/batching.py",
    "transforms/fold_batch_norms.py",
    "deploykit/importers/open_model.py",
    "transforms/ir/graph.py",
    "serving/protocol/predict_wire.py",
    "transforms/ir/pattern.py",
    "deploykit/quantization/search.py",
    "deploykit/verification/verify.py",
)
_PROCESSES = 2


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Try the mutants of each module, and print what killed them."""
    options = _parsed(arguments, root)
    copies: queue.SimpleQueue[TreeCopy] = queue.SimpleQueue()

    def outcomes_of(module: str) -> list[Outcome] | UnmutatedError:
        source = (root / module).read_bytes()
        selected = chosen(mutants(source), f"{options.seed}/{module}", options.number)
        copy = copies.get()
        try:
            return tried(copy, module, selected, options.own)
        except UnmutatedError as error:
            return error
        finally:
            copy.write(module, source)
            copies.put(copy)

    modules = options.modules or MODULES
    found: dict[str, list[Outcome]] = {}
    status = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(_PROCESSES) as threads:
        for number in range(_PROCESSES):
            copies.put(TreeCopy(root, Path(folder) / str(number)))
        for module, outcomes in zip(modules, threads.map(outcomes_of, modules), strict=True):
            if isinstance(outcomes, UnmutatedError):
                print(f"error: {outcomes}", file=sys.stderr)
                status = 1
                continue
            found[module] = outcomes
            if not options.json:
                _show(module, outcomes)
    print(json.dumps(_document(found), indent=1) if options.json else _scores(found))
    return status


def _parsed(arguments: Sequence[str] | None, root: Path) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE",
                        help="path of a module (default: ten modules)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=1, help="choose other mutants (default: 1)")
    parser.add_argument("--number", type=int, default=8, help="mutants per module (default: 8)")
    parser.add_argument("--own", action="store_true",
                        help="run only the test file of each module, not its folder")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    for module in options.modules:
        if not (root / module).is_file():
            parser.error(
                f"there is no module {module}. Give a path from {root}, such as {MODULES[0]}"
            )
        if not list((root / own_tests(module)).parent.glob("test_*.py")):
            parser.error(f"there are no tests of {module}")
    return options


def _show(module: str, outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        mutant, killed_by = outcome.mutant, outcome.killed_by
        print(f"{module}:{mutant.line}: {mutant.kind}\n  from {mutant.before}\n"
              f"  to   {mutant.after}\n  {f'killed by {killed_by}' if killed_by else 'SURVIVED'}",
              flush=True)  # fmt: skip


def _score(outcomes: Sequence[Outcome]) -> int:
    return sum(outcome.killed_by is not None for outcome in outcomes)


def _scores(found: dict[str, list[Outcome]]) -> str:
    rows = [f"{_score(each):>4} of {len(each):>3}  {module}" for module, each in found.items()]
    every = [outcome for outcomes in found.values() for outcome in outcomes]
    return "\n".join(["killed", *rows, f"{_score(every):>4} of {len(every):>3}"])


def _document(found: dict[str, list[Outcome]]) -> dict[str, Any]:
    return {
        module: {
            "killed": _score(outcomes),
            "mutants": [
                {"kind": each.mutant.kind, "line": each.mutant.line, "from": each.mutant.before,
                 "to": each.mutant.after, "killed_by": each.killed_by}
                for each in outcomes
            ],
        }
        for module, outcomes in found.items()
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
