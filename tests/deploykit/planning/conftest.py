"""Plans that simulate fewer calls, where a test does not hold them against theory."""

import pytest

from deploykit.planning import sizing


@pytest.fixture(autouse=True)
def quick(request, monkeypatch):
    if request.module.__name__.rpartition(".")[2] != "test_queueing":
        monkeypatch.setattr(sizing, "CALLS", 15_000)
