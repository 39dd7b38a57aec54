"""The examples in docstrings of public functions, run as they stand."""

import doctest
from collections.abc import Callable
from typing import Any


def run_example(function: Callable[..., Any], **names: Any) -> None:
    """Run the lines behind `>>>` of a docstring; what they print must be what stands there."""
    import deploykit

    test = doctest.DocTestParser().get_doctest(
        function.__doc__ or "", {"deploykit": deploykit, **names}, function.__name__, None, None
    )
    assert test.examples, f"{function.__name__} has no example"
    said: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert not said, "".join(said)
