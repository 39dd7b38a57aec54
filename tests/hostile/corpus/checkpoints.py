"""Checkpoints that point elsewhere, are damaged, or do not fit their graph."""

from collections.abc import Callable
from pathlib import Path

from tests.hostile.bundles import entry, index
from tests.hostile.case import HARMLESS, UNREAD, Case, Statuses, statuses, written
from tests.hostile.corpus.saved_models import VALUES, with_variable
from tests.hostile.graphs import FLOAT

KIND = "checkpoints"
WRONG = statuses(2, 4)
META = with_variable().meta_graphs[0]
GOOD = index({"w": entry(FLOAT, (3, 4), 0, len(VALUES), VALUES)})


def meta(**names: str) -> bytes:
    """Return the bytes of a `.meta` file."""
    return META.SerializeToString(deterministic=True)


def case(
    name: str, make: Callable[[Path], object], *culprit: str, right: Statuses = WRONG,
    heavy: bool = False,
) -> Case:  # fmt: skip
    """Return a case of a folder with a checkpoint."""

    def write(folder: Path) -> Path:
        (folder / "ckpt").mkdir()
        return make(folder / "ckpt") or folder / "ckpt"

    return Case(KIND, name, write, "model", right, culprit, heavy)


def files(
    folder: Path, meta_file: bytes | None = None, index_file: bytes | None = GOOD,
    content: bytes | None = VALUES, state: str = 'model_checkpoint_path: "model"\n',
) -> Path:  # fmt: skip
    """Write the files of a checkpoint; what is None is not there."""
    written(folder, "checkpoint", state)
    written(folder, "model.meta", meta() if meta_file is None else meta_file)
    if index_file is not None:
        written(folder, "model.index", index_file)
    if content is not None:
        written(folder, "model.data-00000-of-00001", content)
    return folder


def stated(state: str) -> Callable[[Path], Path]:
    """Return what writes a sound checkpoint, and a `checkpoint` file that says this."""
    return lambda folder: files(folder, state=state)


def elsewhere(folder: Path) -> Path:
    """Write a checkpoint outside of the folder whose `checkpoint` file points there."""
    outside = folder.parent.parent / "canary"
    outside.mkdir(exist_ok=True)
    return files(folder, state='model_checkpoint_path: "../../canary/model"\n')


CASES = (
    case("sound", files, right=HARMLESS),
    case("checkpoint file empty", stated(""), "checkpoint"),
    case("checkpoint file of garbage", stated("\x00\x01\x02"), "checkpoint"),
    case("checkpoint file that points to nothing", stated('model_checkpoint_path: "gone"'), "gone"),
    case("checkpoint file that points to /etc/passwd",
         stated('model_checkpoint_path: "/etc/passwd"'),
         "checkpoint", "passwd"),
    case("checkpoint file that points upwards",
         stated('model_checkpoint_path: "../../../../etc/passwd"'), "checkpoint", "passwd"),
    case("checkpoint file that points to another folder", elsewhere,
         right=statuses(0, 2, 4)),
    case("checkpoint file with an empty path", stated('model_checkpoint_path: ""'), "checkpoint"),
    case("checkpoint file with a null", stated('model_checkpoint_path: "a\\000b"'), "checkpoint",
         "a"),
    case("checkpoint file of 5 MB", stated("x" * (5 << 20)), "checkpoint", heavy=True),
    case("checkpoint file of a million lines",
         stated('all_model_checkpoint_paths: "x"\n' * 100_000 + 'model_checkpoint_path: "model"\n'),
         right=statuses(0, 2, 4), heavy=True),
    case("index missing", lambda f: files(f, index_file=None), "model.index"),
    case("index empty", lambda f: files(f, index_file=b""), "model"),
    case("index truncated", lambda f: files(f, index_file=GOOD[:-10]), "model"),
    case("index of garbage", lambda f: files(f, index_file=b"\xff" * 300), "model"),
    case("index with a wrong bit", lambda f: files(f, index_file=b"\x01" + GOOD[1:]), "model"),
    case("index that is the values", lambda f: files(f, index_file=VALUES), "model"),
    case("index with blocks beyond its end",
         lambda f: files(f, index_file=GOOD[-48:]), "model"),
    case("index of 1 TiB", lambda f: files(f, index_file=index(
        {"w": entry(FLOAT, (1 << 20, 1 << 18), 0, 1 << 40)})), "model", "'w'"),
    case("index of 100,000 keys", lambda f: files(f, index_file=index(
        {f"k{i}": entry(FLOAT, (), 0, 4) for i in range(20_000)})), "'w'", "model"),
    case("values missing", lambda f: files(f, content=None), "model.data"),
    case("values truncated", lambda f: files(f, content=VALUES[:10]), "model"),
    case("values of other bits", lambda f: files(f, content=bytes(48)), "model", right=UNREAD),
    case("meta file empty", lambda f: files(f, meta_file=b""), "model.meta", right=WRONG),
    case("meta file of garbage", lambda f: files(f, meta_file=b"\xff" * 90), "model.meta"),
    case("meta file truncated", lambda f: files(f, meta_file=meta()[:-9]), "model.meta"),
    case("meta file that is a SavedModel",
         lambda f: files(f, meta_file=with_variable().SerializeToString()), "model.meta"),
    case("a shard that is missing", lambda f: (files(f), (f / "model.data-00000-of-00001").rename(
        f / "model.data-00000-of-00002"))[0], "model.data"),
    case("a hundred thousand shards named", lambda f: (files(f), (
        f / "model.data-00000-of-00001").rename(f / "model.data-00000-of-99999"))[0], "model.data"),
)  # fmt: skip
