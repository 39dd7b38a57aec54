"""The examples in the docstrings of what is public run as they are written."""

import doctest
import functools
import inspect
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import deploykit
from deploykit.importers import resaving
from deploykit.rendering.formatters.shown import text_of
from deploykit.rendering.notebook import html
from deploykit.transforms.common.documents import AsHtml
from docs.generator.markdown import docstring
from tests import pairwise
from tests.deploykit.benchmarking.made_up_results import measurement, result
from tests.deploykit.conftest import FASHION
from tests.serving.served import Served
from tests.serving.small_models import half_plus
from tests.support import call_here

# It reads what the example of `tune` writes.
WITHOUT_EXAMPLE = {"load_tuned"}
SERVER = "127.0.0.1:8500"  # in examples; the tests' server has another port


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return a folder with the files that examples name: docs/generator/api.py lists them."""
    folder = tmp_path_factory.mktemp("examples") / "files"
    shutil.copytree(FASHION, folder)
    deploykit.save_graph(deploykit.freeze(folder / "fashion.keras"), folder / "fashion.pb")
    half_plus(folder / "models" / "half_plus_two", 2)
    for name, p50 in {"before": 6.0, "after": 4.0}.items():
        document = result(measurement("fashion.pb", p50)).document()
        (folder / f"{name}.json").write_text(json.dumps(document))
    return folder


@pytest.fixture(scope="module")
def server(files, tmp_path_factory):
    base = tmp_path_factory.mktemp("base")
    deploykit.export(files / "fashion.pb", base)
    server = Served(base)
    yield server.address
    server.kill()


@pytest.fixture(scope="module")
def saved_once(tmp_path_factory):
    """Return what saves a model again, each file but once: Keras takes two seconds to do it."""
    kept: dict[tuple[str, str], tuple[Path, object]] = {}

    def call(function: str, folder: str, path: str, *arguments: object, **settings: object):
        key = function, Path(path).name
        if key not in kept:
            place = tmp_path_factory.mktemp("saved")
            kept[key] = place, call_here(function, str(place), path, *arguments)
        place, answer = kept[key]
        shutil.copytree(place, folder, dirs_exist_ok=True)
        return answer

    return call


def public() -> dict[str, object]:
    """Return all that is public, and the public methods of classes, by name."""
    found = {name: getattr(deploykit, name) for name in deploykit.__all__}
    for name, kind in list(found.items()):
        if inspect.isclass(kind):
            methods = inspect.getmembers(kind, inspect.isroutine)
            found |= {f"{name}.{m}": f for m, f in methods if not m.startswith("_")}
    return found


PUBLIC = public()
LONG = {"ship"}  # which does all that the others do
QUICK = ("Client", "check", "sensitivity", "status", "verify")
IN_CHILDREN = {"freeze", "optimize"}  # the others run TensorFlow in this process
EXAMPLES = {name: text for name, it in PUBLIC.items() if (text := docstring(it).example)}


class Drawing:
    """deploykit, of which every value that a function returns is drawn as a notebook would."""

    def __init__(self):
        self.drawn = {}

    def __getattr__(self, name):
        found = getattr(deploykit, name)
        if not inspect.isfunction(found):
            return found

        @functools.wraps(found)
        def called(*arguments, **options):
            value = found(*arguments, **options)
            self.drawn[name] = html(text_of(value)) if isinstance(value, AsHtml) else None
            return value

        return called


def failures(text: str, api=deploykit) -> str:
    """Run an example, and return what is not as it says."""
    parsed = doctest.DocTestParser().get_doctest(
        text, {"deploykit": api, "np": np}, "example", None, 0
    )
    assert parsed.examples
    told: list[str] = []
    doctest.DocTestRunner(verbose=False).run(parsed, out=told.append)
    return "".join(told)


@pytest.mark.parametrize(
    "name",
    [
        *QUICK,
        *pairwise.drawn(__name__, [name for name in EXAMPLES if name not in {*LONG, *QUICK}], 8),
        *(pytest.param(name, marks=pytest.mark.full) for name in LONG),
    ],
)
def test_an_example_runs_as_written(name, files, tmp_path, monkeypatch, request):
    shutil.copytree(files, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    if name not in IN_CHILDREN:
        request.getfixturevalue("in_process")
        monkeypatch.setattr(resaving, "call", request.getfixturevalue("saved_once"))
    text = EXAMPLES[name]
    if SERVER in text:
        text = text.replace(SERVER, request.getfixturevalue("server"))
    api = Drawing()
    assert failures(text, api) == ""
    assert name in api.drawn or not inspect.isfunction(PUBLIC[name])
    assert all(each is None or len(each) > 120 for each in api.drawn.values())


def test_each_public_function_has_an_example():
    functions = {name for name in deploykit.__all__ if inspect.isfunction(PUBLIC[name])}
    assert functions - EXAMPLES.keys() == WITHOUT_EXAMPLE


def test_an_example_that_is_wrong_is_seen():
    assert failures(">>> 1 + 1\n2\n") == ""
    assert "Expected:\n    3\nGot:\n    2" in failures(">>> 1 + 1\n3\n")
    assert "NameError" in failures(">>> not_there\n")
