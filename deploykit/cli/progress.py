"""A bar on a terminal while work runs."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(title: str) -> Iterator[Callable[[str, int], None]]:
    """Show a bar on stderr while a pipeline runs, on a terminal only.

    What is yielded takes the name of the next step and how many there are, or a text and 0 to
    change what is said of this one.
    """
    if not sys.stderr.isatty():
        yield lambda name, count: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)

        def advance(name: str, count: int) -> None:
            step = min(count, 1)
            bar.update(task, advance=step, total=count or None, description=f"{title}: {name}")

        yield advance
