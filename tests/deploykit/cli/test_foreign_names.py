"""Options and commands of other tools: the message names what takes their place here."""

import re
import shlex

import click
import pytest

from deploykit.cli import foreign_names
from deploykit.cli.dangerous_options import PROTECTION, effect
from deploykit.cli.foreign_names import OPTIONS, replacement
from deploykit.cli.main import COMMANDS as NAMES
from deploykit.transforms.common.errors import Error
from tests.deploykit.cli.test_conditions import COMMANDS, ROOT_CONTEXT
from tests.support import says, shows

TYPED = [
    ("benchmark m.pb -b 8", "use --batch 8 "),
    ("benchmark m.pb -t 10", "use --seconds 10 "),
    ("benchmark m.pb -niter=50", "use --runs 50 "),
    ("benchmark m.pb -d CPU", "use --device cpu "),
    ("benchmark m.pb -hint latency", "deploykit tune searches "),
    ("benchmark m.pb --fp16", "use --precision fp16 "),
    ("benchmark m.pb --shapes n:1x2x3", "use --shape n=1,2,3 "),
    ("benchmark m.pb --shapes n:1x2,o:3x4", "use --shape n=1,2 --shape o=3,4 "),
    ("benchmark m.pb -shape [1,2]", "use --shape 1,2 "),
    ("benchmark m.pb -shape n[1,2]", "use --shape n=1,2 "),
    ("benchmark m.pb --warmUp=500", "the warm-up ends by itself"),
    ("benchmark m.pb --iterations 4", "use --runs 4 "),
    ("benchmark -m 'my model.pb'", "deploykit benchmark 'my model.pb' "),
    ("inspect --dir /models/1", "deploykit inspect /models/1 "),
    ("serve --model-repository /models", "deploykit serve /models "),
    ("serve --http-port=8000 /models", "use --rest_api_port 8000 "),
    ("load-test -u localhost:8500 -m half", "deploykit load-test localhost:8500 half "),
    ("load-test localhost:8500 -m half", "deploykit load-test ADDRESS half "),
    ("predict -m half x", "deploykit predict ADDRESS half "),
    ("transform --model m.pb", "use --in_graph m.pb "),
    ("benchmark m.pb -infer_precision f16", "use --precision fp16 "),
    ("benchmark -pc m.pb", "use --profile "),
    ("benchmark m.pb --exportTimes 'my t.csv'", "use --csv 'my t.csv' "),
    ("benchmark m.pb -shape x[1,2]", "use --shape x=1,2 "),
    ("benchmark m.pb -shape a[1,2],b[3,4]", "use --shape a=1,2 --shape b=3,4 "),
    ("benchmark m.pb --shapes max:1x2,x:0:3x4", "use --shape max=1,2 --shape x:0=3,4 "),
    ("verify a.pb b.pb --input-shapes x:[1,3,224,224]", "use --shape x=1,3,224,224 "),
    ("freeze m.pb --input_shape '[1, 3]'", "use --shape 1,3 "),
    ("load-test a:1 m --concurrency-range 8:1", "use --concurrency 8,1 "),
    ("load-test a:1 m --concurrency-range 1:8", "use --concurrency 1,2,3,4,5,6,7,8 "),
    ("load-test a:1 m --concurrency-range 2:8:3", "use --concurrency 2,5,8 "),
    ("load-test a:1 m --measurement-interval 5000", "use --seconds 5 "),
    ("verify a.pb b.pb --atol 1e-3", "use --tolerance 1e-3 "),
    ("verify a.pb b.pb --iterations 4", "deploykit benchmark has --runs 4 instead "),
    ("convert m.pb", "deploykit freeze"),
    ("run m.pb", "deploykit infer"),
    ("show --dir m --all", "deploykit inspect"),
    ("profile m.pb", "deploykit benchmark"),
]


@pytest.mark.parametrize(("line", "expected"), TYPED)
def test_the_message_names_what_takes_the_place(deploykit, line, expected):
    found = deploykit(*shlex.split(line))
    assert found.status == 2
    assert expected in found.stderr


@pytest.mark.parametrize("name", [*OPTIONS])
def test_every_option_that_is_advised_exists(name):
    for words, command in COMMANDS.items():
        found, text = replacement(command, f"deploykit {words}", [name, "3"])
        if any(name in parameter.opts for parameter in command.params):
            assert not found
            continue
        assert found == name
        for owner, option in re.findall(r"(?:deploykit ([a-z -]+) has|use) (--[\w-]+)", text):
            having = COMMANDS[owner or words]
            assert any(option in parameter.opts for parameter in having.params)
        if " without an option: " in text:
            line = shlex.split(text.partition(" without an option: ")[2])[1:]
            assert "3" in line
            context = click.Context(command, ROOT_CONTEXT)
            command.make_parser(context).parse_args(line[len(words.split()) :])


@pytest.mark.parametrize("name", [*foreign_names.COMMANDS])
def test_every_command_that_is_advised_exists(name):
    assert foreign_names.COMMANDS[name][1] in NAMES
    assert name not in NAMES


def misspellings(option):
    """Yield an option with a letter less, a wrong one and one more."""
    for place in range(3, len(option)):
        yield option[:place] + option[place + 1 :]
        yield option[:place] + "q" + option[place + 1 :]
    yield f"{option}s"


@pytest.mark.sampled
@pytest.mark.parametrize("words", [*COMMANDS])
def test_no_suggestion_lifts_a_protection(words):
    command, parameters = COMMANDS[words], {}
    for parameter in command.params:
        parameters |= dict.fromkeys(parameter.opts, parameter)
    dangerous = {n for n, p in parameters.items() if effect(str(p.name), "") == PROTECTION}
    for option in (*dangerous, "--format", "--enforce", "--force-it", "--allow", "--allow-all"):
        for name in misspellings(option):
            if not name.startswith("--") or name in parameters:
                continue
            with pytest.raises((Error, click.ClickException)) as error:
                command.make_context(words.split()[-1], [name], ROOT_CONTEXT)
            hint = re.search(says("did-you-mean"), str(error.value)) or [""]
            named = re.findall(r"--[\w-]+", hint[0])
            assert not {*named} & dangerous, (name, str(error.value))


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("benchmark m.pb --bath 3", "--batch"),
        ("benchmark m.pb --conc 3", "--concurrency"),
        ("export m.pb base --format x", ""),
        ("gate a.pb b.pb --modle x", ""),
        ("accuracy m.pb --dta x", "--data"),
        ("serve m --prt=3", "--port"),
        ("serve m --foce", ""),
        ("quantise m.pb", "quantize"),
        ("bench m.pb", "benchmark"),
        ("quant m.pb", "quantize"),
    ],
)
def test_only_near_spellings_are_suggested(deploykit, line, hint):
    found = deploykit(*line.split())
    assert found.status == 2
    assert shows(found.stderr, "did-you-mean", **({"names": hint} if hint else {})) == bool(hint)


def test_an_option_after_the_end_of_options_is_an_argument(deploykit):
    found = deploykit("inspect", "--", "-hint")
    assert "-hint: No such file" in found.stderr
