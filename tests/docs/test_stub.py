"""A program that uses deploykit is checked by the types of the stub."""

import re
import subprocess
import sys

import pytest

PROGRAM = """\
import deploykit

graph: deploykit.Graph = deploykit.quantize("m.pb", max_drop=0.1, mode="static", data="d.npz")
deploykit.quantize("m.pb", max_dorp=0.1)  # call-arg
deploykit.quantize("m.pb", mode="statics")  # arg-type
deploykit.benchmark(["a.pb", "b.pb"], batch=[1, 8], seconds="3")  # arg-type
deploykit.verify("a.pb", "b.pb", deploykit.VerifyOptions(tolerance=1e-3), outputs=["y"])
deploykit.predict("localhost:8500", "m", {"x": [1.0]}, protocol="v3")  # arg-type


def compared(result: deploykit.BenchmarkResult) -> int:
    try:
        return len(result.measurements)
    except deploykit.VerificationError as error:
        return int(error.codes)  # attr-defined
"""


@pytest.mark.sampled
def test_misspelled_keywords_and_words_are_found(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")]
    found = subprocess.run([*command, "program.py"], cwd=tmp_path, capture_output=True, text=True)
    errors = re.findall(r"^program\.py:(\d+): error: .*\[([\w-]+)\]", found.stdout, re.M)
    wanted = [
        (str(number), line.partition("  # ")[2])
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        if "  # " in line
    ]
    assert errors == wanted, found.stdout + found.stderr
