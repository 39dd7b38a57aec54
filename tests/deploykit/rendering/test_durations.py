"""Dates as people write them."""

import pytest

from deploykit.rendering.progress import date


@pytest.mark.parametrize(
    ("started", "shown"),
    [
        ("2026-11-25T19:04:31+00:00", "25 November 2026, 19:04 UTC"),
        ("2027-03-01T00:00:00", "1 March 2027, 00:00"),
        ("", ""),
        ("yesterday", "yesterday"),
    ],
)
def test_dates(started, shown):
    assert date(started) == shown
