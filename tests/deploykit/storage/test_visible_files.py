"""The files of a folder that a command does not read."""

from pathlib import Path

from deploykit.storage.visible_files import unread_files


def test_the_files_of_the_working_folder_are_known_by_any_path(tmp_path, monkeypatch):
    for name in ("a.csv", "b.csv", "c.txt"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    for folder in (".", "./", str(tmp_path)):
        read = sorted(Path(folder).glob("*.csv"))
        assert unread_files(folder, read) == ["c.txt"], folder
    assert unread_files(".", ["./a.csv", "b.csv"]) == ["c.txt"]
