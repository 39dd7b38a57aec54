"""Numbers of replicas are filled where they stand, and nothing else changes."""

import difflib
from pathlib import Path

import pytest
import yaml

from deploykit.exporting.manifests import (
    Deployment,
    ReplicaCounts,
    check_manifests,
    fill_manifests,
    manifests,
)
from deploykit.transforms.common.errors import FileError, GraphError
from tests.support import raises, says

COUNTS = ReplicaCounts("Half_plus.two", 14, 21, 0.667)
BOTH = Deployment(["Half_plus.two", "b"], version=1, cores=2, memory=512)


@pytest.fixture
def folder(tmp_path) -> Path:
    for name, text in manifests(BOTH, ["kubernetes", "kserve"]).items():
        (tmp_path / name).write_text(text)
    return tmp_path


def changed(folder: Path, name: str) -> list[str]:
    before = manifests(BOTH, ["kubernetes", "kserve"])[name].splitlines()
    after = (folder / name).read_text().splitlines()
    assert len(before) == len(after)
    return [line[2:].strip() for line in difflib.ndiff(before, after) if line.startswith("+ ")]


def test_only_the_numbers_change(folder):
    filled = fill_manifests(folder, COUNTS)
    assert [each.name for each in filled] == ["kubernetes.yaml", "kserve.yaml"]
    assert changed(folder, "kubernetes.yaml") == [
        "minReplicas: 14", "maxReplicas: 21", "averageUtilization: 66"
    ]  # fmt: skip
    assert changed(folder, "kserve.yaml") == ["minReplicas: 14", "maxReplicas: 21"]


def test_the_service_of_the_model_gets_them(folder):
    fill_manifests(folder, COUNTS)
    documents = list(yaml.safe_load_all((folder / "kserve.yaml").read_text()))
    least = {
        each["metadata"]["name"]: each["spec"]["predictor"]["minReplicas"]
        for each in documents
        if each["kind"] == "InferenceService"
    }
    assert least == {"half-plus-two": 14, "b": 1}


def test_filling_again_is_the_same(folder):
    fill_manifests(folder, COUNTS)
    once = (folder / "kubernetes.yaml").read_bytes()
    fill_manifests(folder, COUNTS)
    assert (folder / "kubernetes.yaml").read_bytes() == once


def test_what_a_user_wrote_stays(folder):
    (folder / "kserve.yaml").unlink()
    path = folder / "kubernetes.yaml"
    text = path.read_text().replace("minReplicas: 2", 'minReplicas:   2   # as of May: "ä"')
    path.write_text("# minReplicas: 7\n" + text)
    fill_manifests(folder, COUNTS)
    assert path.read_text().startswith("# minReplicas: 7\n# kubectl apply")
    assert 'minReplicas:   14   # as of May: "ä"' in path.read_text()


def test_a_deployment_without_an_autoscaler(folder):
    (folder / "kserve.yaml").unlink()
    path = folder / "kubernetes.yaml"
    path.write_text("kind: Deployment\nspec: {replicas: 3, template: {}}\n")
    fill_manifests(folder, COUNTS)
    assert path.read_text() == "kind: Deployment\nspec: {replicas: 14, template: {}}\n"


@pytest.mark.parametrize(("busy", "percent"), [(0.01, 10), (0.5, 50), (0.999, 90)])
def test_the_use_of_cpu_stays_sensible(busy, percent):
    assert ReplicaCounts("m", 1, 2, busy).percent == percent


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "not YAML"),
        ("", says("replicas-nothing-to-fill")),
        ("kind: Service\n", says("replicas-nothing-to-fill")),
        ("kind: Deployment\nspec: {}\n", says("manifest-without-number", name="replicas")),
        ("kind: Deployment\nspec: [1]\n", says("manifest-without-number", name="replicas")),
        (
            "kind: HorizontalPodAutoscaler\nspec: {minReplicas: many}\n",
            says("manifest-without-number", name="minReplicas"),
        ),
        ("- 1\n- 2\n", "neither"),
    ],
)
def test_files_without_a_place_for_them(tmp_path, text, says):
    (tmp_path / "kubernetes.yaml").write_text(text)
    with pytest.raises(GraphError, match=says):
        check_manifests(tmp_path, "m")
    assert (tmp_path / "kubernetes.yaml").read_text() == text


def test_one_file_that_cannot_be_filled_leaves_the_other(folder):
    (folder / "kserve.yaml").write_text("kind: InferenceService\nmetadata: {name: other}\n")
    before = (folder / "kubernetes.yaml").read_bytes()
    with raises(GraphError, "unknown-name", name="half-plus-two", known=["other"]):
        fill_manifests(folder, COUNTS)
    assert (folder / "kubernetes.yaml").read_bytes() == before


def test_a_folder_without_them(tmp_path):
    with raises(FileError, "manifests-missing"):
        check_manifests(tmp_path, "m")
    (tmp_path / "kubernetes.yaml").write_bytes(b"\xff\xfe")
    with raises(GraphError, "not-text"):
        check_manifests(tmp_path, "m")
