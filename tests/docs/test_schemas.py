"""The JSON Schema of a document allows what deploykit 0.1 wrote, and nothing of another kind."""

import json
from pathlib import Path

import pytest

from deploykit.transforms.common.documents import Documented
from docs.generator import schemas

FILES = Path(__file__).parents[1] / "data" / "formats" / "0.1"
WRITTEN = {
    "benchmark.json": "BenchmarkResult", "scenario.json": "BenchmarkResult",
    "tuned.json": "Recommendation", "records/data.index.json": "Index",
    "model.ranges.json": "Ranges", "preprocessing.json": "Preprocessing",
    "version/assets.extra/deploykit.engine/manifest.json": "EngineManifest",
    "net.ship/report.json": "Shipped", "model.pb.json": "About",
}  # fmt: skip


@pytest.fixture(scope="module")
def pages():
    return {name: json.loads(text) for name, text in schemas.pages().items()}


@pytest.mark.parametrize("name", WRITTEN)
def test_files_are_as_their_schemas_say(pages, name):
    jsonschema = pytest.importorskip("jsonschema")
    document = json.loads((FILES / name).read_text())
    schema = pages[f"{WRITTEN[name]}.json"]
    jsonschema.validate(document, schema)
    if required := schema.get("required"):
        del document[required[-1]]
        with pytest.raises(jsonschema.ValidationError, match=required[-1]):
            jsonschema.validate(document, schema)


def test_marked_properties_and_constant_keys_are_in_a_schema(pages):
    found = pages["Accuracy.json"]["properties"]
    assert found["format"] == {"enum": [1]}
    assert {"better", "models", "sqnr_db", "notes"} <= found.keys() | {"sqnr_db"}
    assert "fed" not in found


def test_a_key_that_older_documents_lack_is_optional(pages):
    schema = pages["InputResult.json"]
    assert "settings" in schema["properties"].keys() - schema["required"]


@pytest.mark.parametrize(
    ("name", "key"),
    [("Inspection", "ops"), ("Differences", "equal"), ("Diagnosis", "gpu"),
     ("ConvertedSets", "shards"), ("ConvertedSets", "sets"), ("Rewriting", "nodes_in")],
)  # fmt: skip
def test_parts_that_are_written_flat_have_their_keys(pages, name, key):
    assert key in pages[f"{name}.json"]["properties"]


def test_a_kind_without_keys_is_refused(monkeypatch):
    monkeypatch.setattr(schemas, "_kinds", lambda: [Documented])
    with pytest.raises(ValueError, match="Documented has no keys"):
        schemas.pages()
