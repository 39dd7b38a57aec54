"""An option without an effect beside the others is an error that says where it has one."""

import contextlib
import itertools

import click
import pytest

from deploykit.benchmarking.engines.runner import check_bf16
from deploykit.cli.conditions import CONDITIONS, check_conditions, conditions_of
from deploykit.cli.main import cli
from deploykit.transforms.common.errors import Error, GraphError
from tests.deploykit.cli.test_headings import ROOT_CONTEXT
from tests.support import because, raises, shows

CASES = [
    ("benchmark m.pb --top 3", "--profile or --trace"),
    ("benchmark m.pb --runs 3 --seconds 2", "without --runs"),
    ("benchmark m.pb --data x.npz --input-range 0,1", "without --data"),
    ("optimize m.pb --data x.npz --input-range 0,1", "without --data"),
    ("freeze m.keras --data x.npz --shape x=1,2", "without --data"),
    ("verify m.pb n.pb --data x.npz --input-range 0,1", "without --data"),
    ("verify m.pb n.pb --min-sqnr 20 --tolerance 0.1", "without --min-sqnr"),
    ("tune m.pb --data x.npz --input-range 0,1", "without --data"),
    ("placement m.pb --engine openvino --cpu-devices 2", "--engine tensorflow"),
    (
        "transform --in_graph m.pb --out_graph n.pb --transforms fold_constants --tolerance 1",
        "--verify",
    ),
    ("export m.pb base --warmup-samples 3", "--warmup"),
    ("export m.pb base --max-pixels 3", "--preprocess"),
    ("load-test a:1 m --data x.npz --rate 3 --concurrency 2", "without --rate"),
    ("predict a:1 m 2 --key k.pem", "--certificate"),
    ("status a:1 --version 3", "MODEL"),
    ("ship m.pb --max-drop 0.1 --dry-run", "--calibration and --evaluation"),
    ("quantize m.pb --data x.npz --input-range 0,1", "without --data"),
    ("transform --in_graph m --out_graph n --transforms fold_constants --data x", "--verify"),
    ("serve served --max_json_mb=3", "with --rest_api_port"),
    ("serve served --allow_reload", "other machines"),
    ("serve served --allow_reload --host=0.0.0.0 --workers=2", "--workers=1"),
    ("input write data --outputs y", "with --model"),
    ("verify m.pb n.pb --force", "with -o"),
    ("benchmark m.pb --force", "with -o, --csv, --plot or --trace"),
    ("export m.pb base --force", "--manifests or --batching"),
]


@pytest.mark.parametrize(("words", "where"), CASES)
def test_an_option_without_effect_is_refused(deploykit, words, where):
    found = deploykit(*words.split())
    assert found.status == 2, found.stderr
    assert shows(found.stderr, "option-no-effect")
    assert where in found.stderr


def commands(group=cli, words=()):
    """Yield the words of every command, and the command."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield " ".join((*words, name)), command


COMMANDS = dict(commands())
VALUES = ("1", "file.json", "a=1", "1,2", "0,1", "x=1,2", "1..2", "all", "0", "10.0.0.1",
          "false", "fold_constants")  # fmt: skip


def parsed(words, given):
    """Return the context of a command line; nothing is run."""
    parent = ROOT_CONTEXT
    for each in words.split()[:-1]:
        parent = click.Context(parent.command.get_command(parent, each), parent)
    return COMMANDS[words].make_context(words.split()[-1], [*given], parent)


def spelled(words, parameter):
    """Yield the words that give a parameter to a command: values that it takes."""
    if getattr(parameter, "is_flag", False):
        yield (parameter.opts[0],)
        return
    named = (parameter.opts[0],) if isinstance(parameter, click.Option) else ()
    known = VALUES if parameter.name != "transforms" else VALUES[-1:]
    for value in (*getattr(parameter.type, "choices", ()), *known):
        with contextlib.suppress(click.ClickException, Error):
            parameter.type_cast_value(click.Context(COMMANDS[words]), _one(parameter, value))
            yield (*named, value)


def _one(parameter, value):
    return (value,) if parameter.multiple or parameter.nargs == -1 else value


def lines(words, option, where):
    """Yield command lines with an option, and with no other, one other or two others.

    Those that `where` names come first.
    """
    parameters = [each for each in COMMANDS[words].params if each.name not in (
        option.name, "help", "timeout", "memory_limit", "debug", "root_dir")]  # fmt: skip
    first = [next(spelled(words, each)) for each in parameters if each.required]
    own = next(spelled(words, option)) if not option.required else ()
    every = [given for each in parameters if not each.required for given in spelled(words, each)]
    every.sort(key=lambda given: given[0] not in where)
    base = [*itertools.chain(*first), *own]
    yield base
    for each in every:
        yield [*base, *each]
    for each in itertools.combinations(every, 2):
        yield [*base, *itertools.chain(*each)]


EVERY = [
    (words, name, condition)
    for words, command in COMMANDS.items()
    for condition in conditions_of(words, command)
    for name in condition.options
]


NO_EFFECT = ("option-no-effect", "no-effect")  # of an error, of a warning


@pytest.mark.parametrize(
    ("words", "name", "condition"), [pytest.param(*each, id="-".join(each[:2])) for each in EVERY]
)
def test_each_condition_fires_and_is_met(words, name, condition, caplog):
    (option,) = (each for each in COMMANDS[words].params if each.name == name)
    found = set()
    for line in lines(words, option, condition.where):
        with contextlib.suppress(click.ClickException, Error):
            context = parsed(words, line)
            said = outcome(context, caplog)
            fires = any(shows(said, code, where=condition.where) for code in NO_EFFECT)
            assert not (fires and condition.holds(context.params))
            found |= {fires} if fires or condition.holds(context.params) else set()
        if len(found) == 2:
            return
    raise AssertionError(f"{option.opts[0]}: of fires and is met, only seen: {found}")


def outcome(context, caplog):
    """Return what is said of a command line: errors, and warnings of TensorFlow Serving's flags."""
    caplog.clear()
    error = ""
    try:
        check_conditions(context)
    except Error as found:
        error = str(found)
    return "\n".join([error, *caplog.messages])


def test_every_command_that_need_not_write_has_a_condition_for_force():
    for words, command in COMMANDS.items():
        own = {each.name: each for each in command.params}
        writes_always = (
            "output" not in own or "default: " in own["output"].help or own["output"].required
        )
        if "force" in own and not writes_always:
            several = conditions_of(words, command)
            assert any("force" in each.options for each in several), words


def test_conditions_are_those_of_commands():
    assert {*CONDITIONS} <= {*COMMANDS}
    assert "verify" in CONDITIONS  # which `records verify` has no part in
    check_conditions(parsed("records verify", ["folder", "--processes", "2"]))


def test_verify_of_optimize_is_deprecated(deploykit, small):
    found = deploykit("optimize", small, "--verify", "-o", small.parent / "o.pb")
    assert found.status == 0
    assert because("verify-deprecated") in found.stderr
    assert "--verify" not in deploykit("optimize", "--help").stdout


def test_bf16_that_openvino_does_not_run_is_an_error():
    check_bf16(["f32", "bf16"])
    with raises(GraphError, "precision-bf16-no-op", types=["f32", "i8"]):
        check_bf16(["i8", "f32", "f32"])
