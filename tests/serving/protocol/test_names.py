"""Names that callers make up: those that are too long are refused unread, and never repeated."""

import pytest

from deploykit.serving.protocol.errors import MESSAGE_LENGTH, ServingError, reported
from deploykit.serving.protocol.versions import MAX_NAME_BYTES, check_name, check_names
from tests.support import shows


@pytest.mark.parametrize("name", ["", "a" * 256, "é" * 128, "\U0001f600" * 64, "\ud800" * 256])
def test_names_up_to_the_limit_are_taken(name):
    check_names("it", [name])


@pytest.mark.parametrize(
    "name", ["a" * 257, "é" * 129, "\U0001f600" * 64 + "a", "\ud800" * 257, "x" * (20 << 20)]
)
def test_longer_ones_are_refused_without_being_repeated(name):
    with pytest.raises(ServingError) as error:
        check_name("an alias", name)
    assert error.value.status == "INVALID_ARGUMENT"
    assert shows(error.value.message, "name-too-long", what="an alias", most=MAX_NAME_BYTES)


def test_errors_of_any_length_are_shown_and_logged_in_part(caplog):
    found = reported(ValueError("x" * 100_000))
    assert found.status == "INTERNAL"
    assert len(found.message) == MESSAGE_LENGTH
    assert len(caplog.records[0].getMessage()) < MESSAGE_LENGTH + 100


def test_an_error_that_is_reported_keeps_no_frames():
    try:
        raise ServingError("NOT_FOUND", "no")
    except ServingError as error:
        found = reported(error)
    assert found.__traceback__ is None
