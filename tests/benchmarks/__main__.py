"""Run the benchmarks, or those that are named: `python -m tests.benchmarks [NAME ...]`."""

import importlib
import sys

from tests.benchmarks.figures import show

# Each is a module here with a function `figures()`.
NAMES = (
    "start_up", "large_graphs", "resnet50", "real_models", "transforms", "overhead", "judge",
    "tuning", "records", "input", "verdicts", "speed", "int8", "peers", "serving", "photos",
)  # fmt: skip


def main(names: list[str]) -> None:
    """Measure and show one benchmark after another."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        sys.exit(f"there is no benchmark {unknown[0]}; there are: {', '.join(NAMES)}")
    for name in names or NAMES:
        show(name, importlib.import_module(f"tests.benchmarks.{name}").figures())


if __name__ == "__main__":
    main(sys.argv[1:])
