"""Transform strings that both read alike."""

from tests.differential.case import Case, Refusal, error_of
from tests.differential.graphs import const, placeholder
from tests.support import Containing, built, random, tf


@built(["x"], ["out"])
def small():
    """Return an Identity, a CheckNumerics and a device to remove."""
    raw = tf.raw_ops
    x = raw.Identity(input=placeholder(2, 3), name="same")
    with tf.device("/CPU:0"):
        x = raw.CheckNumerics(tensor=x, message="no", name="checked")
    raw.Mul(x=x, y=const(random(3), "c"), name="out")


STRINGS = {
    "empty": "",
    "blanks": "  \t ",
    "no parameters": "remove_device()",
    "several": "remove_device  sort_by_execution_order remove_nodes(op=Identity)",
    "repeated parameters": "remove_nodes(op=Identity, op=CheckNumerics)",
    "no comma": "remove_nodes(op=Identity op=CheckNumerics)",
    "no blank after a comma": "remove_nodes(op=Identity,op=CheckNumerics)",
    "double quotes": 'remove_nodes(op="Identity", op="CheckNumerics")',
    "ignore_errors": "fold_constants(ignore_errors=true) remove_device(ignore_errors=FALSE)",
    "the same twice": "remove_nodes(op=Identity) remove_nodes(op=Identity)",
    "line breaks": "remove_device\n\nremove_nodes(op=Identity)\n",
}
REFUSED = {
    "unknown transform": (
        "remove_devise",
        "Transform 'remove_devise' not recognized",
        error_of("missing", kind="transform", name="remove_devise"),
    ),
    "comma between transforms": (
        "remove_device,remove_device",
        "Looking for transform name, but found ,",
        error_of("syntax-unexpected", expected=Containing("transform"), found=","),
    ),
    "semicolon": (
        "remove_device;",
        "Looking for transform name, but found ;",
        error_of("syntax-unexpected", expected=Containing("transform"), found=";"),
    ),
    "comma at the end": (
        "remove_nodes(op=Identity,)",
        "Looking for parameter name, but found )",
        error_of("syntax-unexpected", expected=Containing("parameter"), found=")"),
    ),
    "no value": (
        "remove_nodes(op=)",
        "Looking for parameter name, but found )",
        error_of("syntax-unexpected", expected=Containing("value"), found=")"),
    ),
    "no name": (
        "remove_nodes(=Identity)",
        "Looking for parameter name, but found =",
        error_of("syntax-unexpected", expected=Containing("parameter"), found="="),
    ),
    "ignore_errors is no truth value": (
        "remove_device(ignore_errors=yes)",
        "ignore_errors should be true or false, found yes",
        error_of("parameter-value", name="ignore_errors", got="yes"),
    ),
}

CASES = [
    *(Case(what, small, text) for what, text in STRINGS.items()),
    *(Refusal(what, small, *texts) for what, texts in REFUSED.items()),
]
