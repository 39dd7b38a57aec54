"""Equal nodes that the original merges and should not."""

from tests.differential.defects.defect import Defect
from tests.differential.graphs import net
from tests.differential.judging import keeps, makes

MERGE = "merge_duplicate_nodes"


def two_outputs(raw, x):
    raw.Relu(features=x, name="a")
    raw.Relu(features=x, name="b")


DEFECTS = [
    Defect(MERGE, "two equal outputs given as a:0 and b:0", net(two_outputs, outputs=("a", "b")),
           MERGE, "one of them is missing",
           makes(lambda before, after: ("a" in after) != ("b" in after)), "keeps both",
           keeps(Relu=2), outputs="a:0,b:0"),
]  # fmt: skip
