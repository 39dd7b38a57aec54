"""What a long job has found outlives an interruption, for the same question alone."""

import pytest

from deploykit.storage.resume_file import State


def test_findings_are_there_again_until_they_are_forgotten(tmp_path):
    path = tmp_path / "out.state"
    State(path, "tuning", {"cpu": "this", "sizes": (1, 8)}).keep("noise", {"a": 1.5})
    again = State(path, "tuning", {"cpu": "this", "sizes": (1, 8)})
    assert again.stored == {"noise": {"a": 1.5}}
    again.keep("more", [1])
    assert State(path, "tuning", {"cpu": "this", "sizes": (1, 8)}).stored == again.stored
    again.forget()
    assert not path.exists()
    again.forget()


@pytest.mark.parametrize(
    "content",
    ["{}", "[", '{"kind": "tuning", "format": 9}', '{"kind": "tuning", "format": 1}',
     '{"kind": "tuning", "format": 1, "bound": {"cpu": "other"}, "found": {"a": 1}}',
     '{"kind": "other", "format": 1, "bound": {"cpu": "this"}, "found": {"a": 1}}',
     '{"kind": "tuning", "format": 1, "bound": {"cpu": "this"}, "found": 3}'],
)  # fmt: skip
def test_a_state_of_something_else_is_left(tmp_path, content):
    path = tmp_path / "state"
    path.write_text(content)
    assert State(path, "tuning", {"cpu": "this"}).stored == {}


def test_without_a_path_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    state = State(None, "tuning", {})
    state.keep("a", 1)
    state.forget()
    assert state.stored == {"a": 1}
    assert not list(tmp_path.iterdir())
