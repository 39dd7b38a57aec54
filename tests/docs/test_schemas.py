"""The JSON Schema of a document allows what deploykit 0.1 wrote, and nothing of another kind."""

import json
from pathlib import Path

import pytest

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
