"""An error is a class, a code and fields; its sentence is in one catalogue, and is read late."""

import json
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

from deploykit.batch_inference.answers import UnrankedError
from deploykit.serving.client.endpoint import CallError
from deploykit.serving.protocol.errors import MESSAGE_LENGTH, ServingError
from deploykit.serving.rest.http_requests import HttpError, from_serving
from deploykit.transforms.common.errors import (
    BugError,
    Error,
    FileError,
    GraphError,
    LoadError,
    NotQuantizedError,
    PipelineError,
    StepError,
    naming,
)
from deploykit.transforms.common.messages import catalogue, fields_of, render
from docs.generator import errors as errors_page
from tests.support import Containing, shows

_PLACE = re.compile(r"\{[^}]*\}")


class UserError(GraphError):
    """As a user's own transform may define it."""

    def __init__(self, layer, rate):
        super().__init__(f"layer {layer} has rate {rate}")
        self.layer = layer


def every_kind():
    return [
        GraphError("unknown-name", kind="input", name="x", hint="", known=["a", "b"]),
        PipelineError("quote-open", "fold(a='b", 7),
        StepError("step-differs", source="m.pb", step="fold", reason="bad", kept="nothing"),
        NotQuantizedError("float32-is-right", reason="no speedup", report={"a": 1}),
        UnrankedError("class-scores-nan", name="y", rows=(1, 2)),
        ServingError("NOT_FOUND", "signature-key-missing", name="s"),
        HttpError(413, "http-body-too-large", most=3, flag="", retry=True),
        CallError("response-timeout", "DEADLINE_EXCEEDED", seconds=3.0),
        BugError("child-bug", kind="KeyError", reason="x"),
        UserError("dense", 0.5),
        GraphError("a text of its own, with {braces}"),
        Error(),
    ]


@pytest.mark.parametrize("error", every_kind(), ids=lambda each: type(each).__name__)
def test_an_error_is_the_same_in_another_process(error):
    there = pickle.loads(pickle.dumps(error))
    assert type(there) is type(error)
    assert (there.code, there.fields, str(there)) == (error.code, error.fields, str(error))
    assert there.__dict__ == error.__dict__


@pytest.mark.parametrize(
    ("names", "shown"), [(["a", "b"], "'a', 'b'"), ("ab", "'ab'"), ([], "none")]
)
def test_names_are_quoted(names, shown):
    assert render("{names!q:,}", {"names": names}) == shown


def test_a_message_is_made_of_the_fields():
    error = GraphError("unknown-name", kind="input", name="x", hint="", known=("a", "b"))
    assert shows(str(error), "unknown-name", kind="input", known=["a", "b"], name="x")
    assert error.fields == {"kind": "input", "name": "x", "hint": "", "known": ["a", "b"]}
    assert error.code == "unknown-name"


def test_fields_are_what_json_has(tmp_path):
    values = {
        "path": tmp_path, "number": np.float32(0.5), "count": np.int64(3), "shape": (1, None),
        "array": np.arange(2), "none": None, "yes": np.bool_(True), "cause": ValueError("bad"),
        "infinite": float("inf"), "names": {"a": 1}, "each": (n for n in "ab"),
    }  # fmt: skip
    error = GraphError("x", **values)
    assert json.loads(json.dumps(error.document(), allow_nan=False))["fields"] == {
        "path": str(tmp_path), "number": 0.5, "count": 3, "shape": [1, None], "array": [0, 1],
        "none": None, "yes": True, "cause": "bad", "infinite": "inf", "names": ["a"],
        "each": ["a", "b"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (GraphError("free text"), "graph-error", "free text"),
        (GraphError("no-such-code"), "graph-error", "no-such-code"),
        (GraphError("{not} a place", x=1), "graph-error", "{not} a place"),
        (UserError("dense", 0.5), "user-error", Containing("layer dense has", "0.5")),
        (Error(), "error", ""),
    ],
)
def test_a_text_that_is_no_code_is_the_message(error, code, message):
    assert (error.code, str(error)) == (code, message)


def test_a_document_has_all_of_it():
    error = FileError("file-error", source="a.pb", reason="gone")
    assert error.document() == {
        "code": "file-error", "class": "FileError", "message": "a.pb: gone", "exit_status": 4,
        "fields": {"source": "a.pb", "reason": "gone"},
    }  # fmt: skip


def test_an_outer_error_keeps_code_and_fields_of_the_inner_one():
    inner = LoadError("graph-empty")
    with pytest.raises(LoadError) as found, naming("a.pb"):
        raise inner.within("function 'f'")
    assert str(found.value) == f"a.pb: function 'f': {inner}"
    assert found.value.code == "graph-empty"
    assert found.value.fields == {"source": "a.pb: function 'f'"}
    assert inner.fields == {}
    with pytest.raises(LoadError) as again, naming("a.pb"):
        raise found.value
    assert str(again.value) == str(found.value)
    other = inner.within("b", FileError)
    assert (type(other), other.exit_status, other.code) == (FileError, 4, "graph-empty")


def test_what_a_caller_of_a_server_hears():
    error = ServingError("RESOURCE_EXHAUSTED", "file-error", reason="y" * 5000)
    assert len(error.message) == MESSAGE_LENGTH
    refused = from_serving(error)
    assert (refused.status, refused.code, bool(refused.headers)) == (429, "file-error", True)
    inner = GraphError("graph-empty")
    assert str(ServingError.of("INVALID_ARGUMENT", inner, "here")) == f"here: {inner}"


def test_the_catalogue_is_read_when_a_message_is_shown():
    code = (
        "from deploykit.transforms.common import errors;"
        "from deploykit.transforms.common import messages;"
        "error = errors.GraphError('graph-empty', path='x');"
        "before = messages.catalogue.cache_info().misses; str(error);"
        "print(before, messages.catalogue.cache_info().misses)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1"]


def test_every_error_of_the_product_is_in_the_catalogue_with_its_fields():
    known, wrong, used = catalogue(), [], set()
    for site in errors_page.sites():
        if site.code is None:
            continue  # it is made of another one
        used.add(site.code)
        if site.code not in known:
            wrong.append(f"{site.where}: {site.maker.name} has no code, but {site.code!r}")
        elif site.fields is not None:
            differing = (site.fields - {"source"}) ^ fields_of(known[site.code])
            wrong += [f"{site.where}: {site.code}: {each}" for each in sorted(differing)]
    assert wrong == []
    assert sorted(known.keys() - used) == []


def test_no_message_is_there_twice():
    texts = [text for text in catalogue().values() if re.search("[a-z]", _PLACE.sub("", text))]
    assert [text for text in set(texts) if texts.count(text) > 1] == []


@pytest.mark.parametrize(
    "source",
    [
        "raise GraphError(f'no {x}')",
        "raise GraphError('graph-empty', name=1)",
        "raise GraphError('no such code')",
        "raise ServingError('NOT_FOUND', 'words')",
        "def f(code, /, **fields):\n    return GraphError(code, **fields)\nraise f('words')",
    ],
)
def test_a_wrong_place_is_seen(source, monkeypatch):
    path = errors_page.ROOT / "deploykit" / "x.py"
    errors_page.classes()  # of the product
    modules = {path: errors_page.nodes_of(source)}
    monkeypatch.setattr(errors_page, "_modules", lambda: modules)
    for each in (errors_page._helpers, errors_page._makers):
        monkeypatch.setattr(errors_page, each.__name__, each.__wrapped__)
    (site,) = (each for each in errors_page.sites() if each.path == path)
    known = catalogue().get(site.code)
    assert known is None or site.fields != fields_of(known)
