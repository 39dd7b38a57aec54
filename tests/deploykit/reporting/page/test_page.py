"""A page shows every kind of document, whatever its values are, and stays small and harmless."""

import json
import random
import re
from html import unescape
from typing import Any

import pytest

from deploykit.rendering.templates import sentence
from deploykit.reporting.charts.inline import images
from deploykit.reporting.page import values
from deploykit.reporting.page.page import KINDS as SHOWN
from deploykit.reporting.page.page import MAX_BYTES, html_of, kind_of
from deploykit.transforms.common.errors import GraphError
from tests.deploykit.reporting.page.drawn import documents
from tests.deploykit.reporting.page.reading import at, read
from tests.deploykit.reporting.page.samples import COMMANDS, KINDS, figure, ship
from tests.documents import pins
from tests.pairwise import once_each
from tests.support import Containing, because, says, shows

HOSTILE = "</td></table><script>alert(1)</script><img src=//x.example onerror=y>\"'`&amp;{{7*7}}"
KINDS_OF = {"engine placement": "placement"}
EVERY = pytest.mark.parametrize("kind", sorted(KINDS))


def number(path: str) -> float:
    return 0.25


def page_of(document: dict[str, Any], **more: Any) -> str:
    return html_of([document], files=["a.json"], **more)


def test_every_kind_that_is_shown_has_a_sample():
    assert {KINDS_OF.get(kind, kind) for kind in KINDS} == set(SHOWN)


@EVERY
def test_a_document_is_known_by_itself(kind):
    document = KINDS[kind](number)
    wanted = KINDS_OF.get(kind, kind)
    assert kind_of(document, "a") == wanted
    if kind not in ("ship", "accuracy", "benchmark", "input", "tuned"):
        del document["command"], document["schema"]  # as a value's document()
        assert kind_of(document, "a") == wanted


@pytest.mark.sampled
@EVERY
def test_every_figure_says_where_it_is_in_the_document(kind):
    document = KINDS[kind](number)
    found = read(page_of(document))
    assert found.places
    for place in found.places:
        assert at(document, place) is not None, place
    assert "0.25" in found.text


@EVERY
@pytest.mark.parametrize("seed", range(8))
def test_values_of_any_type_break_no_page(kind, seed):
    made = random.Random(f"{kind} {seed}")
    odd = [None, None, 0, -1, 3, 10**400, 1e308, float("nan"), float("-inf"), True, False, "",
           HOSTILE, "x" * 5000, "\ud800", "\x00\x1b[31m", "\u202eabc", [], {}, [1, 2], [[]],
           {"value": "x"}, {"\ud800\"": {"value": None}}]  # fmt: skip
    document = KINDS[kind](lambda path: made.choice(odd), made.choice([1, 2, 5]))
    if kind == "ship":
        for each in document["stages"]:
            each["document"] = made.choice([each["document"], None, [], 3, "x", {}])
        document["figures"][made.choice(["size", "p50"])] = made.choice([None, [], 1, {}])
    found = read(page_of(document))
    assert "{{" not in found.text.replace(HOSTILE, "")
    assert "49" not in re.findall(r"\b49\b", found.text)


@EVERY
def test_names_of_a_stranger_stay_text(kind):
    """The page has the same elements, whether a name is a word or tries to be more."""
    word = read(page_of(KINDS[kind](lambda path: "name")))
    hostile = read(page_of(KINDS[kind](lambda path: HOSTILE)))
    assert hostile.tags == word.tags
    assert HOSTILE in hostile.texts


def test_a_page_that_runs_something_is_seen():
    html = page_of(KINDS["verify"](number))
    for broken in (HOSTILE, '<a href="https://x.example">x</a>', "<p onclick=x></p>", "</p>",
                   '<p id="content"></p>'):  # fmt: skip
        with pytest.raises(AssertionError):
            read(html.replace("</main>", f"{broken}</main>"))


def test_what_cannot_be_seen_is_made_visible():
    html = page_of(KINDS["load-test"](lambda path: "a\u202eb\x00c\ud83d"))
    assert html.encode()
    assert "a\ufffdb\ufffdc\ufffd" in html


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["quantize", "placement", "benchmark", "ship", "check"])
def test_a_huge_document_makes_a_small_page(kind):
    count = 100 if kind in ("benchmark", "ship") else 3000
    document = KINDS[kind](lambda path: "n/" * 100 if "name" in path or "node" in path else 0.25,
                           count)  # fmt: skip
    assert len(json.dumps(document)) > 500_000
    found = read(page_of(document))
    said = re.search(
        rf"(\d+) of {count:,} are shown; all of them are in (\S+) in a.json", found.text
    )
    assert said
    assert len(at(document, said[2])) == count


@pytest.mark.slow
def test_a_page_never_outgrows_its_bound():
    """Where sections together are too large, the last ones say where their figures are."""
    drawn = f"<svg role='img' aria-label='x'><text>{'x' * 700_000}</text></svg>"
    document = ship(number)
    html = page_of(document, images=lambda name, document, of: [(name, drawn)])
    assert 1_000_000 < len(html.encode()) <= MAX_BYTES
    read(html)
    many = html_of([ship(lambda path: HOSTILE * 9, 40)] * 30, files=["&" * 250] * 30)
    found = read(many)
    assert shows(found.text, "page-too-large")


@pytest.mark.sampled
@once_each(["seed"], range(2), quick=1)
def test_what_can_be_drawn_is_drawn(seed):
    html = html_of(documents(seed), images, ["a.json", "b.json", "c.json", "d.json"])
    found = read(html)
    labels = {"Latency distribution", "Throughput over latency", "By class", "Time by op",
              "Throughput over latency under load", "Time by layer"}  # fmt: skip
    titles = [each.partition(":")[0] for each in found.texts]
    assert labels <= set(titles)
    assert found.tags["svg"] >= len(labels)


def test_a_document_that_cannot_be_drawn_has_its_tables():
    document = documents(0)[0]
    document["measurements"][0]["rounds_ms"] = None
    found = read(page_of(document, images=images))
    assert "Latency and throughput" in found.text
    assert "Latency distribution" not in found.texts


def test_the_noisiest_layers_are_named():
    document = KINDS["quantize"](number)
    layers = [{"layer": f"layer {n}", "sqnr_db": 40.0 - n} for n in range(30)]
    document["layers"] = [*layers, {"layer": "unknown", "sqnr_db": None}]
    (said,) = [each for each in read(page_of(document)).texts if "layer 29 " in each]
    assert said == Containing("29", "11.0 dB", "28", "12.0 dB", "27", "13.0 dB")
    assert "layer 26" not in said


def test_a_stage_that_was_left_out_says_why():
    document = ship(number)
    for each in document["stages"]:
        if each["stage"] == "tune":
            each |= {"outcome": "undecided", "why": "the machine was <busy>", "document": None}
        if each["stage"] == "accuracy":
            each |= {"outcome": "left out", "why": "no --evaluation was given", "document": None}
        if each["stage"] == "export":
            each["document"] = None
    found = read(page_of(document))
    assert "Undecided: the machine was <busy>" in found.texts
    assert "Left out: no --evaluation was given" in found.texts
    assert "No metrics were stored" in found.texts


def decided() -> dict[str, Any]:
    """Return a report with figures of every form: exact, with intervals, unknown, inconclusive."""
    document = ship(number)
    share = {"value": 0.907, "low": 0.887, "high": 0.923}
    document["figures"] |= {
        "accuracy": figure(title="accuracy", verdict="-0.2 points", unit="share", after=share,
                           ratio=None),
        "size": figure(unit="bytes", after={"value": 80_200, "low": None, "high": None},
                       ratio={"value": 3.23, "low": 3.23, "high": 3.23}, verdict="smaller"),
        "p50": figure(after={"value": 0.291, "low": 0.285, "high": 0.297},
                      ratio={"value": 2.1, "low": 2.04, "high": 2.17}, verdict="faster: x"),
        "rate": figure(title="throughput", unit="items/s", after=None, before=None, ratio=None,
                       verdict="not measured: no time"),
        "cpu": figure(title="CPU time", unit="ms/item"),
    }  # fmt: skip
    document["verdict"] = "The model is <smaller>."
    document["stages"][5] |= {"outcome": "left out", "why": "no labels", "document": None}
    document["commands"] = [{"what": "serve", "command": "deploykit serve <a>.ship"}]
    return document


def summary_faults(document: dict[str, Any], html: str) -> list[str]:
    """Return what the first page of a report lacks of its document."""
    first = read(f"{html[: html.index('<nav')]}</article></main></body></html>")
    wanted = [document["verdict"], document["commands"][0]["command"]]
    for each in document["figures"].values():
        unit = each["unit"]
        for end in filter(None, (each["before"], each["after"])):
            wanted.append(values.amount(end["value"], unit))
            wanted.append(values.span(end["low"], end["high"], unit))
        if ratio := each["ratio"]:
            wanted.append(f"{values.plain(ratio['value'])}x")
            wanted.append(values.span(ratio["low"], ratio["high"]))
    return [text for text in wanted if text and text not in first.texts]


@pytest.mark.sampled
def test_the_summary_has_the_figures_of_the_document():
    document = decided()
    html = page_of(document, images=images)
    assert summary_faults(document, html) == []
    for said in ("throughput: not measured: no time", "accuracy: left out: no labels",
                 "CPU time: the interval of the improvement includes 1"):  # fmt: skip
        assert said in read(html).texts
    document["figures"]["p50"]["after"]["value"] = 0.292  # now the page is of another document
    assert summary_faults(document, html) == ["0.292 ms"]


def test_the_summary_names_batch_threads_machine_and_date():
    document = ship(number) | {
        "started": "2026-11-25T19:04:31+00:00",
        "measured": {"batch": 8, "threads": [2, 1], "concurrency": 3},
    }
    document["machine"] |= {"cpu": "Some Processor 9", "cpus": 2}
    page = page_of(document)
    first = page[: page.index("<nav")]
    for each in ("batch 8; threads 2x1; concurrent requests 3", "Some Processor 9, 2 CPUs",
                 "25 November 2026, 19:04 UTC"):  # fmt: skip
        assert each in first
    document["measured"] = {"batch": 1, "threads": None, "concurrency": 1}
    assert "batch 1; threads default<" in page_of(document)


def chart_titles(html: str) -> list[str]:
    return [unescape(each) for each in re.findall(r"<figcaption>(.*?)</figcaption>", html)]


def title_faults(titles: list[str], *wanted: str) -> list[str]:
    """Return the titles that lack one of the texts."""
    return [title for title in titles if not all(text in title for text in wanted)]


@pytest.mark.sampled
@once_each(
    ["name", "engine"],
    ["shapes", "<b>&\"'", "model " * 60, "模型", ""],
    ["tensorflow", "openvino"],
    quick=2,
)
def test_every_chart_names_the_model_and_its_settings(name, engine):
    document = profiled_ship(engine) | {"name": name, "precision": "int8"}
    document["machine"] |= {"cpu": "Some Processor 9", "cpus": 2}
    for each in document["stages"]:
        if each["stage"] == "accuracy":
            each["document"] |= documents(0)[3]
        if each["stage"] == "quantize":
            each["document"] |= documents(0)[2]
    html = page_of(document, images=images)
    titles = chart_titles(html)
    assert len(titles) >= 8
    known = name[:20] or "."  # without a name, files of models
    assert title_faults(titles, known, "batch ", "threads ", "Some Processor 9, 2 CPUs") == []
    assert max(map(len, titles)) < 500
    read(html)
    broken = [titles[0].replace("batch ", ""), *titles[1:]]
    assert title_faults(broken, known, "batch ") == broken[:1]


def test_a_single_result_names_its_file_without_a_model():
    document = documents(0)[2]
    document.pop("model", None)
    titles = chart_titles(page_of(document, images=images))
    assert titles
    assert title_faults(titles, "a.json") == []


def test_sections_of_a_shipped_model_come_in_the_order_of_questions():
    found = re.findall(r'<h2 id="\w+h">([^<]*)<', page_of(ship(number)))
    order = ["Accuracy", "Verification", "Optimization, step by step", "Speed",
             "Time by op and node", "Input", "Layers in int8", "Placement",
             "Threads and settings", "Stages", "Environment", "Commands to repeat it"]  # fmt: skip
    assert [each for each in found if each in order] == order


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["benchmark", "tuned", "quantize", "load-test", "input"])
def test_a_result_alone_has_the_sections_of_a_shipped_model(kind):
    alone = re.findall(r'<h2 id="\w+h">([^<]*)<', page_of(KINDS[kind](number)))
    shipped = re.findall(r'<h2 id="\w+h">([^<]*)<', page_of(ship(number)))
    assert set(alone) - {"Load on a server"} <= set(shipped)


def test_several_results_are_one_page():
    documents = [KINDS[kind](number) for kind in ("benchmark", "tuned", "verify")]
    found = read(html_of(documents, files=["a.json", "b.json", "c.json"]))
    assert found.tags["h1"] == 1
    assert found.tags["article"] == 3
    assert {"a.json", "b.json", "c.json"} <= set(found.texts)


@EVERY
def test_sections_ask_for_keys_that_documents_have(kind, monkeypatch):
    """A key with a slip would leave its figure out of all pages, without a word."""
    if kind == "ship":
        return  # its keys are those of the others
    asked = set()
    plain = values.DocumentPart.__getitem__

    def noting(self: values.DocumentPart, key: str | int) -> values.DocumentPart:
        found = plain(self, key)
        asked.add(found.place)
        return found

    monkeypatch.setattr(values.DocumentPart, "__getitem__", noting)
    page_of(KINDS[kind](lambda path: "latency" if path == "goal" else 0.25))
    always, sometimes = pins(COMMANDS.get(kind, kind))
    known = {re.sub(r"\[\]", "", each) for each in always | sometimes}
    known |= {re.sub(r"\.\*", "", each) for each in known}
    unknown = set()
    for place in asked:
        path = re.sub(r'\[\d+\]|\["[^"]*"\]', "", place)
        path = re.sub(r"\.[a-z_]*\*?\d+(?=\.|$)", "", path)
        if path and path not in known and not path.startswith("ops_by_"):
            unknown.add(path)
    leaves = {f"{each}.{key}" for each in known for key in ("value", "low", "high")}
    titles = {each for each in unknown if each.split(".")[0] in IN_TITLES}
    assert unknown - leaves - OTHERWISE - titles == set()


# Titles of charts look for these in every document; the tests of titles read them.
IN_TITLES = {"name", "model", "measurements", "summary", "samples", "facts", "settings", "measured",
             "batch", "engine", "precision", "machine"}  # fmt: skip
# Of documents that are alike: a stage of `ship` beside what its command prints.
OTHERWISE = {
    "verification.verified", "nodes_before", "nodes", "bytes_before", "bytes", "verification",
    "seconds", "weights",
    "machine", "started", "judgement.before.interval", "judgement.after.interval",
}  # fmt: skip


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], says("document-not-object", source="a.json")),
        (3, says("document-not-object", source="a.json")),
        ({}, says("report-kind-unknown", source="a.json")),
        ({"kind": "pipeline", "format": 1}, says("report-kind-unknown", source="a.json")),
        ({"kind": ["ship"], "format": 1}, says("report-kind-unknown", source="a.json")),
        ({"command": {}, "schema": 1}, says("report-kind-unknown", source="a.json")),
        (
            {"kind": "ship", "format": 2},
            says("document-format", source="a.json", what="format", got=2, known=1),
        ),
        ({"kind": "tuned"}, says("document-format", source="a.json", what="format", known=1)),
        (
            {"command": "verify", "schema": 0},
            says("document-format", source="a.json", what="schema", got=0),
        ),
        (
            {"command": "serve", "schema": 1},
            says("report-kind-unknown", source="a.json", kind="serve"),
        ),
    ],
    ids=str,
)
def test_what_is_no_result_is_said_in_one_sentence(document, said):
    with pytest.raises(GraphError, match=said) as caught:
        html_of([document], files=["a.json"])
    assert "\n" not in str(caught.value)


def profiled_ship(engine: str) -> dict[str, Any]:
    """Return a report whose last measurement is that of the shipped model, all with profiles."""
    document, benchmark = ship(number) | {"engine": engine}, documents(0)[0]
    stage = next(each for each in document["stages"] if each["stage"] == "benchmark")
    profile = next(each["profile"] for each in benchmark["measurements"] if each.get("profile"))
    benchmark["measurements"] = [
        each | {"profile": profile, "name": f"model {n}", "model": f"{n}.pb"}
        for n, each in enumerate(benchmark["measurements"])
    ]
    benchmark["measurements"][-1]["settings"] = {"engine": engine}
    stage["document"] |= {"models": benchmark}
    return document


@pytest.mark.sampled
@once_each(["engine"], ["openvino", "tensorflow"], quick=1)
def test_profiles_show_the_shipped_model_and_then_the_original(engine):
    document = profiled_ship(engine)
    last = len(document["stages"][8]["document"]["models"]["measurements"]) - 1
    page = page_of(document, images=images)
    shown = [f"model {last} (shipped)", "model 0"]
    assert re.findall(r'aria-label="By op: (.*?)"', page) == shown
    (ops,) = [each for each in chart_titles(page) if each.startswith("Time by op:")]
    assert " and ".join(shown) in ops
    assert {"openvino": "OpenVINO", "tensorflow": "TensorFlow"}[engine] in ops


@pytest.mark.slow
def test_a_shipped_model_without_a_profile_is_not_named_as_shown():
    document = profiled_ship("openvino")
    document["stages"][8]["document"]["models"]["measurements"][-1]["profile"] = None
    page = page_of(document, images=images)
    assert because("profile-of-shipped") in page
    assert "(shipped)" not in page


@pytest.mark.slow
def test_no_two_pictures_have_one_title():
    twice = [documents(0)[0], documents(0)[0], profiled_ship("openvino")]
    page = html_of(twice, images, ["a.json", "a.json", "b"])
    titles = re.findall(r"<figcaption>(.*?)</figcaption>", page)
    assert len(titles) == len(set(titles)) > 8
    assert len(set(re.findall(r'class="title">(.*?)<', page))) == 3


def test_a_benchmark_names_batches_threads_and_machine_first():
    document = documents(0)[0]
    document["machine"] = {"cpu": "Some Processor 9", "cpus": 2}
    for samples, each in zip((1, 8), document["measurements"], strict=False):
        threads = {"intra_op_threads": 2 * (samples > 1), "inter_op_threads": 0}
        each |= {"samples": samples, "facts": each["facts"] | threads}
    page = page_of(document)
    first = re.sub(r"<.*?>", "", page[page.index("<article>") : page.index("<nav")])
    for each in ("1, 8", "default, 2x0", "Some Processor 9, 2 CPUs"):
        assert each in first


def test_sentences_begin_with_a_capital():
    document = ship(number)
    document["stages"][0] |= {"why": "nothing was left", "outcome": "left out"}
    document["figures"]["cpu"] |= {"verdict": "less CPU time"}
    found = read(page_of(document, images=images)).texts
    assert {"Nothing was left", "Less CPU time"} <= set(found)
    benchmark = documents(0)[0]
    benchmark["conditions"] = {"busy": "measured on a loaded machine"}
    assert "loaded machine" in read(page_of(benchmark)).text
    assert sentence("b_1.pb is faster") == "b_1.pb is faster"
