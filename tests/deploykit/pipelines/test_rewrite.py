"""`transform --dump` and `--verify`: the graph after each step, and the step that broke it."""

import pytest

import deploykit as api
from deploykit.api.comparison import VerifyOptions
from deploykit.importers.graph_files import load_graph
from deploykit.inspection.diff import differences
from deploykit.pipelines.transform import first_failure
from tests.support import showing, shows, transform

STEPS = ["strip_unused_nodes", "fold_constants", "fold_batch_norms", "merge_duplicate_nodes"]
BREAKS = "remove_nodes(op=Relu)"
pytestmark = pytest.mark.usefixtures("in_process")


@pytest.fixture
def run(deploykit, small):
    """Transform the small graph into out.pb with a dump beside it."""

    def run(steps, *more):
        return deploykit(
            "transform", f"--in_graph={small}", f"--out_graph={small.parent / 'out.pb'}",
            f"--transforms={' '.join(steps)}", "--dump", small.parent / "dump", *more,
        )  # fmt: skip

    return run


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_graph_after_each_step(run, small):
    found = run(STEPS, "--json")
    assert found.status == 0, found.stderr
    folder = small.parent / "dump"
    expected = [f"{number:02}-{name}.pb" for number, name in enumerate(STEPS, start=1)]
    assert names(folder) == expected
    assert found.document["dump"] == [str(folder / name) for name in expected]
    graph = load_graph(small)
    for number, name in enumerate(expected, start=1):
        after = transform(graph, " ".join(STEPS[:number]))
        assert differences(load_graph(folder / name), after)["equal"]
    assert (folder / expected[-1]).read_bytes() == (small.parent / "out.pb").read_bytes()
    assert not differences(load_graph(folder / expected[1]), load_graph(folder / expected[2]))[
        "equal"
    ]


def test_the_report_of_a_graph_documents_what_json_shows(run, small):
    of_command = {"schema", "command", "input_file", "output_file", "seconds"}
    shown = run(STEPS, "--json", "--verify").document
    files = {"output": small.parent / "same.pb", "dump": small.parent / "same"}
    found = api.transform(small, " ".join(STEPS), verify=True, **files).report.document()
    assert found.keys() == shown.keys() - of_command
    for key in ("inputs", "outputs", "bytes_in", "bytes_out", "nodes_in", "nodes_out", "passed"):
        assert found[key] == shown[key] is not None, key
    assert [step["transform"] for step in found["steps"]] == STEPS


def test_a_dump_replaces_only_a_dump_and_only_when_forced(run, small):
    folder = small.parent / "dump"
    assert run(STEPS).status == 0
    (folder / "notes.txt").write_text("mine")
    (folder / "01-model.pb").write_bytes(b"mine")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    found = run(STEPS[:1])
    assert (found.status, found.printed) == (4, "")
    (small.parent / "out.pb").unlink()
    found = run(STEPS[:1])
    assert (found.status, found.printed) == (4, "")
    assert shows(found.stderr, "dump-not-empty")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert run(STEPS[:1], "--force").status == 0
    assert names(folder) == ["01-model.pb", "01-strip_unused_nodes.pb", "notes.txt"]


def test_folders_that_cannot_be_taken(deploykit, small):
    def dump(folder, source=small):
        found = deploykit(
            "transform", "--in_graph", source, "--out_graph", small.parent / "out.pb",
            "--transforms=remove_device", "--dump", folder, "--force",
        )  # fmt: skip
        assert (found.status, found.printed) == (4, "")
        assert not (small.parent / "out.pb").exists()
        return found.stderr

    assert shows(dump(small), "dump-is-file")
    assert shows(dump(small.parent / "no" / "dump"), "folder-missing")
    folder = small.parent / "dump"
    folder.mkdir()
    source = folder / "01-remove_device.pb"
    source.write_bytes(small.read_bytes())
    assert shows(dump(folder, source), "dump-holds-input")
    assert source.read_bytes() == small.read_bytes()


def test_a_graph_that_tensorflow_does_not_import_is_not_written(deploykit, small):
    out = small.parent / "out.pb"

    def transform(text):
        return deploykit("transform", "--in_graph", small, "--out_graph", out, "--transforms", text)

    found = transform("remove_attribute(attribute_name=T)")
    assert (found.status, found.printed) == (2, "")
    assert shows(found.stderr, "transforms-not-importable")
    assert not out.exists()
    assert transform("rename_op(old_op_name=Relu, new_op_name=OfTheUser)").status == 0


@pytest.mark.sampled
@pytest.mark.parametrize("place", range(len(STEPS) + 1))
def test_the_step_that_breaks_the_bar_is_named(run, small, place):
    steps = [*STEPS[:place], BREAKS, *STEPS[place:]]
    found = run(steps, "--verify")
    assert (found.status, found.printed) == (5, "")
    assert shows(found.stderr, "step-differs")
    assert len(found.stderr.splitlines()) == 1
    assert not (small.parent / "out.pb").exists()
    folder = small.parent / "dump"
    kept = names(folder)
    assert kept == [f"{n:02}-{name}.pb" for n, name in enumerate(STEPS[:place], start=1)]
    before = folder / kept[-1] if kept else "the input"
    assert shows(found.stderr, "graph-before", before=before)
    if kept:
        assert api.verify(small, before).passed


def test_the_first_of_two_is_named(run):
    found = run([STEPS[1], BREAKS, STEPS[2], "remove_nodes(op=Mean, max_inputs=2)"], "--verify")
    assert found.status == 5
    assert shows(
        found.stderr,
        "step-differs",
        kept=showing("graph-before"),
        reason=showing("step-fails", place=2, count=4, step="remove_nodes"),
    )


def test_the_reason_is_that_of_the_named_step(small):
    """What the last step adds to the error is not its doing."""
    graph = load_graph(small)
    steps = f"fold_constants {BREAKS} quantize_weights(minimum_size=2)"
    compare = VerifyOptions(tolerance=1e-5).ready(graph)
    last = compare(graph, transform(graph, steps))
    place, found = first_failure(graph, steps, compare, last)
    assert place == 1
    assert found == compare(graph, transform(graph, f"fold_constants {BREAKS}"))
    assert found != last


def test_without_a_dump_nothing_is_written(deploykit, small):
    found = deploykit(
        "transform", "--in_graph", small, "--out_graph", small.parent / "out.pb", "--verify",
        f"--transforms=fold_constants {BREAKS}",
    )  # fmt: skip
    assert found.status == 5
    assert names(small.parent) == ["small.pb"]


def test_optimize_names_the_step_too(deploykit, small, monkeypatch):
    monkeypatch.setattr(
        "deploykit.api.rewriting.OPTIMIZE", f"fold_constants {BREAKS} remove_device"
    )
    found = deploykit("optimize", small, "--verify")
    assert (found.status, found.printed) == (5, "")
    assert shows(
        found.stderr,
        "step-differs",
        reason=showing("step-fails", place=2, count=3, step="remove_nodes"),
    )


def test_a_step_that_fails_leaves_the_graphs_before_it(run, small):
    found = run(["fold_constants", "pin_placeholder(name=nowhere, value=1)", "remove_device"])
    assert (found.status, found.printed) == (2, "")
    assert names(small.parent / "dump") == ["01-fold_constants.pb"]
    assert not (small.parent / "out.pb").exists()


def test_a_step_that_is_passed_over_leaves_the_graph_as_it_was(run, small):
    skipped = "pin_placeholder(name=nowhere, value=1, ignore_errors=true)"
    assert run(["fold_constants", skipped]).status == 0
    first, second = sorted((small.parent / "dump").iterdir())
    assert second.name == "02-pin_placeholder.pb"
    assert first.read_bytes() == second.read_bytes()
