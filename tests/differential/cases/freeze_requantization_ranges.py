"""Ranges come from a log of earlier runs."""

from pathlib import Path

from tests.differential.case import Case, Refusal, error_of
from tests.differential.graphs import const, net
from tests.support import tf

NAME = "freeze_requantization_ranges"
LOG = 'min_max_log_file="{folder}/log"'
MARK = "2026-01-01 00:00:00.1: I logging_ops.cc:121] "


def quantized(names=("range",)):
    """Return 32-bit numbers whose range is measured, as 8 bits and as floats; once a name."""

    def make(raw, x):
        low, high = const(-20.0, "low"), const(20.0, "high")
        wide = raw.QuantizeV2(input=x, min_range=low, max_range=high, T=tf.qint32, name="wide")
        results = []
        for name in names:
            given = {"input": wide[0], "input_min": wide[1], "input_max": wide[2]}
            measured = raw.RequantizationRange(**given, name=name)
            small = raw.Requantize(
                **given, requested_output_min=measured[0], requested_output_max=measured[1],
                out_type=tf.quint8, name=f"{name}/small",
            )  # fmt: skip
            results.append(raw.Dequantize(input=small[0], min_range=small[1], max_range=small[2],
                                          name=f"{name}/floats"))  # fmt: skip
        raw.AddN(inputs=results, name="out")

    return net(make)


def record(low, high, name: str = "range") -> str:
    return f"{MARK};{name}__print__;__requant_min_max:[{low}][{high}]"


def log(*lines: str):
    def write(folder: Path) -> None:
        (folder / "log").write_text("\n".join(lines) + "\n")

    return write


def runs(count: int, name: str = "range") -> list[str]:
    """Return records whose ends grow in steps of different lengths, in no order."""
    return [record(-0.1 * (k * 7 % count) - 0.5, 0.3 * (k * 3 % count) + 0.7, name)
            for k in range(count)]  # fmt: skip


TWO = quantized(["range", "scope/range"])

CASES = [
    Case("one record", quantized(), f"{NAME}({LOG})", files=log(record(-2.4313571, 10.584145))),
    Case("bad numbers are passed over", quantized(), f"{NAME}({LOG})", files=log(
        "something else", record("x", 1), record(-0.5, "1.2.3"), record(-1.5, 2.5),
        ";__requant_min_max:[1][2]", record(-3.5, 1.5))),
    Case("two nodes", TWO, f"{NAME}({LOG})",
         files=log(record(-1, 2), record(-0.25, 0.75, "scope/range"), record(-1.5, 1))),
    Case("one of two nodes", TWO, f"{NAME}({LOG})", files=log(record(-1, 2, "scope/range"))),
    Case("20 runs", quantized(), f"{NAME}({LOG})", files=log(*runs(20))),
    Case("13 runs", quantized(), f"{NAME}({LOG}, min_percentile=10, max_percentile=20)",
         files=log(*runs(13))),
    Case("100 runs", quantized(), f"{NAME}({LOG}, min_percentile=2.5, max_percentile=0)",
         files=log(*runs(100))),
    Case("all of them", quantized(), f"{NAME}({LOG}, min_percentile=0, max_percentile=0)",
         files=log(*runs(7))),
    Refusal("no log", quantized(), NAME, "You must pass a file name",
            error_of("parameter-missing", name="min_max_log_file")),
    Refusal("a log that is missing", quantized(), f"{NAME}({LOG})",
            "log", error_of("file-error", reason="No such file or directory")),
    Refusal("a log without records", quantized(), f"{NAME}({LOG})",
            "No min/max range logs were found in the log file", error_of("ranges-log-empty"),
            log("nothing")),
    Refusal("a node that the graph does not have", quantized(), f"{NAME}({LOG})",
            "Nodes were found in the log file that aren't present in the graph",
            error_of("missing", kind="node", name="other"),
            log(record(-1, 1, "other"))),
    Refusal("a node of another op", quantized(), f"{NAME}({LOG})",
            "wide", error_of("ranges-log-node", node="wide"), log(record(-1, 1, "wide"))),
]  # fmt: skip
