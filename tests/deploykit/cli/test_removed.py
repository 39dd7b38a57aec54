"""What was removed answers with what takes its place: commands, options, fields, Python names."""

import pytest

import deploykit as api
from deploykit.transforms.common import removed
from tests.support import Containing, assert_error


@pytest.mark.parametrize("words", removed.COMMANDS)
def test_a_command_names_its_substitute(deploykit, words):
    found = deploykit(*words.split(), "a", "--rate", 5, "--json")
    assert found.status == 2
    assert_error(found.error, "removed", instead=removed.COMMANDS[words])


@pytest.mark.parametrize("words", removed.COMMANDS)
def test_so_does_its_table_in_the_project_file(deploykit, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deploykit.toml").write_text(f"[{words}]\nrate = 5\n")
    found = deploykit("transforms")
    assert found.status == 2
    expected = {"instead": removed.COMMANDS[words], "source": "deploykit.toml"}
    assert_error(found.error, "removed", **expected)


OPTIONS = [(words, option) for words, options in removed.OPTIONS.items() for option in options]


@pytest.mark.parametrize(("words", "option"), OPTIONS)
def test_so_does_an_option_and_its_key_in_the_project_file(
    deploykit, tmp_path, monkeypatch, words, option
):
    monkeypatch.chdir(tmp_path)
    found = [deploykit(*words.split(), "a.pb", "b.pb", option, "x", "--json")]
    (tmp_path / "deploykit.toml").write_text(f"[{words}]\n{option.lstrip('-')} = true\n")
    found.append(deploykit(*words.split(), "a.pb", "b.pb"))
    for each in found:
        assert each.status == 2
        assert_error(each.error, "removed", instead=removed.OPTIONS[words][option])


FIELDS = [(kind, name) for kind, fields in removed.FIELDS.items() for name in fields]


@pytest.mark.parametrize(("kind", "name"), FIELDS)
def test_so_does_a_field_of_an_option_class(kind, name):
    with pytest.raises(TypeError) as caught:
        getattr(api, kind)(**{name: 2})
    assert str(caught.value) == Containing(f"{kind}({name}=...)", removed.FIELDS[kind][name])


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (api.benchmark, "BenchmarkOptions"),
        (api.benchmark, "InputPipelineOptions"),
        (api.benchmark, "RunConfigGrid"),
        (api.quantize, "QuantizeOptions"),
        (api.write_input, "InputPipelineOptions"),
    ],
)
def test_so_does_a_keyword_argument_of_a_function_that_takes_the_fields(function, kind):
    for name, instead in removed.FIELDS[kind].items():
        with pytest.raises(TypeError) as caught:
            function("a.pb", **{name: 2})
        assert str(caught.value) == Containing(f"{function.__name__}({name}=...)", instead)


@pytest.mark.parametrize("name", removed.NAMES)
def test_so_does_a_python_name(name):
    with pytest.raises(AttributeError) as caught:
        getattr(api, name)
    assert removed.NAMES[name] in str(caught.value)
    assert name not in dir(api)


def test_what_never_was_has_another_error():
    with pytest.raises(AttributeError) as caught:
        api.plann  # noqa: B018  an AttributeError is expected
    assert "plann" in str(caught.value)
    removed.check_command("ship")
    removed.check_name("ship")
    with pytest.raises(TypeError, match="allocater"):
        api.RunConfigGrid(allocater="tcmalloc")
