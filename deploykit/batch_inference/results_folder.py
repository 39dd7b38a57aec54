"""The results folder: its lock, the parts of earlier runs, and the index."""

import contextlib
import glob
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from deploykit.batch_inference.infer_task import FORMATS, InferOptions, PartDone
from deploykit.batch_inference.reading.data_parts import place_of
from deploykit.batch_inference.results_index import MadeOf, PartsJournal, index_document, read_index
from deploykit.records.conversion import alone, check_apart, check_name, is_whole, remove
from deploykit.records.index import index_path, shard_files, shard_name
from deploykit.storage.files import check_output_folder, remove_leftovers, write
from deploykit.storage.table_formats.table_files import is_remote
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import FileError, GraphError

logger = logging.getLogger("deploykit")

SPLIT = "csv_split"
"""The option that states how CSV files are split into parts."""
_FLAGS = {field_.name for field_ in fields(InferOptions)}
_LONGEST = 40  # maximum characters of a value in a message


class ResultsFolder:
    """Results of one name in a folder that this process has locked. `note` is thread-safe."""

    def __init__(self, folder: Path, name: str, made_of: MadeOf, force: bool) -> None:
        """Find the results of an earlier run. FileError: they differ and may not be replaced."""
        self.path = index_path(folder, name)
        self._folder = folder
        self._name = name
        self._made_of = document(made_of)
        self._journal = PartsJournal(folder / f".{name}.parts.jsonl")
        self._index: dict[str, Any] | None = None
        remove_leftovers(folder, f"{glob.escape(name)}-*")
        self._done = self._found(force)
        if self._done:
            logger.info("%s: %s parts already exist", folder, self._count())
        if self._index is None:
            self._journal.begin(self._made_of, self._done.values())

    def kept(self) -> dict[int, PartDone]:
        """Return the complete parts of earlier runs, by number."""
        return dict(self._done)

    def file(self, number: int) -> str:
        """Return the file name of a part."""
        end = str(self._made_of["options"]["format"])
        return shard_name(self._name, number, self._made_of["parts"], end)

    def note(self, done: PartDone) -> None:
        """Record a written part. FileError: the journal cannot be written."""
        self._journal.add(done)
        self._done[done.number] = done

    def finish(self) -> dict[str, Any]:
        """Write the index, remove the journal, and return the index.

        FileError: a part is missing. GraphError: no row of the data is valid.
        """
        if self._index is not None:
            return self._index
        for number in range(self._made_of["parts"]):
            if not self._is_there(number):
                raise FileError("part-missing", source=self._folder, number=number, name=self._name)
        parts = [self._done[number] for number in sorted(self._done)]
        index = index_document(self._name, self._made_of, parts)
        if not index["rows"] and index["skipped"]:
            remove(*(self._folder / part.file for part in parts), self._journal.path)
            raise _nothing(index)
        write(self.path, [json.dumps(index, indent=1).encode(), b"\n"], force=True)
        self._journal.remove()
        return index

    def end_early(self) -> None:
        """Log the finished parts of an interrupted run; remove the journal if there are none."""
        if self._index is not None:
            return
        if self._done:
            logger.info("%s: %s parts are finished; run the same command to resume",
                        self._folder, self._count())  # fmt: skip
        else:
            self._journal.remove()

    def _count(self) -> str:
        done, parts = len(self._done), self._made_of["parts"]
        return f"all {parts}" if done == parts else f"{done} of {parts}"

    def _is_there(self, number: int) -> bool:
        done = self._done.get(number)
        with contextlib.suppress(OSError):
            return done is not None and os.path.getsize(self._folder / done.file) == done.bytes
        return False

    def _found(self, force: bool) -> dict[int, PartDone]:
        """Return the complete parts of an earlier run; remove those that differ."""
        files = shard_files(self._folder, self._name, FORMATS)
        path, made_of = files[0] if files else self.path, None
        done: dict[int, PartDone] = {}
        index = None
        try:
            is_running = self._journal.path.exists()
            if self.path.exists():
                try:
                    path, (made_of, done, index) = self.path, read_index(self.path)
                except GraphError:
                    if not is_running:
                        raise
            if is_running:  # the journal of an unfinished run is newer than the index
                path, (made_of, done), index = self._journal.path, self._journal.read(), None
        except GraphError as error:
            if not force:
                raise FileError("force-begins-anew", reason=error) from None
            made_of = None
        differing = difference(made_of, self._made_of) if made_of else ["of an unknown run"]
        if differing:
            if not force and (done or files):
                raise FileError("results-exist", source=path, what=differing)
            remove(self.path, *files, self._journal.path)
            return {}
        parts = range(self._made_of["parts"])
        whole = {n: item for n, item in done.items() if n in parts and self._is_whole(item)}
        self._index = index if all(number in whole for number in parts) else None
        return whole

    def _is_whole(self, done: PartDone) -> bool:
        """Return whether the file of a part is unchanged since an earlier run wrote it."""
        has_name = done.file == self.file(done.number)
        return has_name and is_whole(self._folder / done.file, vars(done))


@contextlib.contextmanager
def results_folder(
    folder: Path, name: str, made_of: MadeOf, force: bool = False
) -> Iterator[ResultsFolder]:
    """Lock a folder for results of one name, and find the results of an earlier run.

    Parts of the same model, data and options are kept; with `force`, others are replaced.
    FileError: there are others, another process writes them, or the folder is not writable.
    GraphError: the name is invalid.
    """
    check_name(name, "results")
    check_output_folder(folder)
    check_apart([made_of.data["path"]], folder)
    _check_files(folder, name, made_of.files)
    with alone(folder, name, "results"):
        result = ResultsFolder(folder, name, made_of, force)
        try:
            yield result
        except BaseException:
            result.end_early()
            raise


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the differences between what earlier results were made of and the current run."""
    results = []
    (model, data), (new_model, new_data) = ((of["model"], of["data"]) for of in (before, now))
    if model.get("sha256") != new_model["sha256"]:
        results.append(_another("another model", model.get("source"), new_model["source"]))
    if data.get("kind") != new_data["kind"]:
        kinds = f"{data.get('kind')}, not as {new_data['kind']}"
        results.append(f"of data that was read as {kinds}")
    elif data.get("fingerprint") != new_data["fingerprint"]:
        results.append(_another("other data", data.get("path"), new_data["path"]))
    old, new = _flat(before["options"]), _flat(now["options"])
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            results.append(_option(name, old.get(name), new.get(name)))
    if not results and before["parts"] != now["parts"]:
        results.append(f"in {before['parts']} parts, not {now['parts']}")
    return results


def _another(what: str, before: object, now: object) -> str:
    is_same = before == now
    return f"of {what} ({f'{now} has changed since' if is_same else f'{before}, not {now}'})"


def _flat(options: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    """Return options by their key paths; some options of a document are nested."""
    results: dict[tuple[str, ...], Any] = {}
    for name, item in options.items():
        inner = isinstance(item, dict)
        results |= {(name, key): value for key, value in item.items()} if inner else {(name,): item}
    return results


def _option(names: tuple[str, ...], before: object, now: object) -> str:
    last = names[-1]
    if last == SPLIT and before is None:
        return "of deploykit 0.1, which split CSV files in other places"
    if last == SPLIT:
        return "of another version of deploykit, which found other rows in CSV files"
    text = f"--{last.replace('_', '-')}" if last in _FLAGS else " ".join(names).replace("_", " ")
    texts = [json.dumps(item) for item in (before, now)]
    if before is None:
        return f"made without {text}"
    if max(map(len, texts)) > _LONGEST:
        return f"made with other {text}"
    return f"made with {text} {texts[0]}, not {'without' if now is None else texts[1]}"


def _check_files(folder: Path, name: str, files: Sequence[str]) -> None:
    """Raise FileError if results would replace files of the data."""
    ours = {shard_file.name for shard_file in shard_files(folder, name, FORMATS)}
    for file in files if ours else ():
        is_ours = not is_remote(file) and os.path.basename(file) in ours
        if is_ours and os.path.samefile(os.path.dirname(file) or ".", folder):
            raise FileError("data-named-as-result", source=file)


def _nothing(document: Mapping[str, Any]) -> GraphError:
    first = document["skipped"][0]
    place = place_of(document["data"]["kind"], first["file"], first["row"])
    return GraphError("no-row-computed", place=place, reason=first["reason"])
