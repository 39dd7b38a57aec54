"""Run the benchmarks, or those that are named: `python -m tests.benchmarks [NAME[:PART] ...]`.

`gpu` has options of its own, and is run alone: `python -m tests.benchmarks gpu --help`.
"""

import importlib
import os
import sys
from typing import Any

from tests.benchmarks.figures import show

# Each is a module here with a function `figures()`. Where it has PARTS, that takes one's name too.
NAMES = (
    "judge", "gate", "input", "speed", "int8", "peers", "serving", "cpu_per_call", "photos",
    "batch_inference", "text_inference", "protocols",
)  # fmt: skip
GPU = "gpu"


def main(names: list[str]) -> None:
    """Measure and show one benchmark after another."""
    if names[:1] == [GPU]:
        importlib.import_module(f"tests.benchmarks.{GPU}").main(names[1:])
        return
    chosen = [_named(name) for name in names or NAMES]
    for (module, parts), name in zip(chosen, names or NAMES, strict=True):
        show(name.replace(":", "-"), module.figures(*parts))


def _named(name: str) -> tuple[Any, list[str]]:
    """Return the module of a benchmark, and its part if one is named. SystemExit: there is none."""
    benchmark, _, part = name.partition(":")
    if benchmark not in NAMES:
        sys.exit(f"there is no benchmark {benchmark}; there are: {', '.join((*NAMES, GPU))}")
    module = importlib.import_module(f"tests.benchmarks.{benchmark}")
    parts = getattr(module, "PARTS", ())
    if part and part not in parts:
        sys.exit(f"{benchmark} has no part {part}; it has: {', '.join(parts) or 'none'}")
    return module, [part] if part else []


if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    main(sys.argv[1:])
