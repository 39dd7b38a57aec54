"""What the original's transform string does not say or not read."""

from deploykit.transforms.ir.graph import Graph
from tests.differential.cases.grammar import small
from tests.differential.defects.defect import Defect
from tests.differential.judging import Right, Shown, fails, gives, makes, refuses
from tests.support import ops


def string(what: str, text: str, original: str, shown: Shown, deploykit: str, right: Right):
    """Return a defect of the transform string, shown on a small graph."""
    return Defect("transform string", what, small, text, original, shown, deploykit, right)


def one_identity_less(before: Graph, after: Graph) -> bool:
    return ops(after).get("Identity", 0) == ops(before)["Identity"] - 1


READS = "reads it"
NO_IDENTITY = gives(one_identity_less)

DEFECTS = [
    string("an unknown parameter", "quantize_weights(no_such_parameter=3)", "ignores it",
           makes(lambda before, after: len(after) == len(before)),
           "error with the valid parameters",
           refuses("parameter-unknown", transform="quantize_weights", name="no_such_parameter")),
    string("an unclosed parenthesis", "remove_nodes(op=Identity", "drops the transform silently",
           makes(lambda before, after: not one_identity_less(before, after)),
           "error that shows which one", refuses("parenthesis-open")),
    string("an unquoted colon", "remove_nodes(op=Identity) strip_unused_nodes(name=x:0, "
           "type_for_name=float, shape_for_name=\"2,3\")", "refuses it",
           fails("Looking for"), READS, NO_IDENTITY),
    string("single quotes", "remove_nodes(op='Identity')", "refuses them", fails("Looking for"),
           "reads them", NO_IDENTITY),
    string("spaces around =", "remove_nodes(op = Identity)", "refuses them",
           fails("Looking for =, but found"), "reads them", NO_IDENTITY),
    string("a space before a parenthesis", "remove_nodes (op=Identity)", "refuses it",
           fails("Looking for"), READS, NO_IDENTITY),
    string("a space before a comma", "remove_nodes(op=Identity , op=CheckNumerics)", "refuses it",
           fails("Looking for"), READS, NO_IDENTITY),
    string("a space between empty parentheses", "remove_device( ) remove_nodes(op=Identity)",
           "refuses it", fails("Looking for parameter name, but found )"), READS, NO_IDENTITY),
    string("a comment", "remove_nodes(op=Identity) # that is all", "refuses it",
           fails("Looking for transform name, but found #"), READS, NO_IDENTITY),
    string("a backslash at the end of a line", "remove_device \\\nremove_nodes(op=Identity)",
           "refuses it", fails("Looking for transform name, but found"), READS, NO_IDENTITY),
    string("GraphDef versions", "remove_nodes(op=Identity)",
           "loses them: the result looks like a file of an early TensorFlow",
           makes(lambda before, after: before.versions.producer > 0 == after.versions.producer),
           "keeps them",
           gives(lambda before, after: before.versions == after.versions)),
]  # fmt: skip
