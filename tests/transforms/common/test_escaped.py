"""Text of strangers is safe on terminals and in shell commands."""

import os
import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from deploykit.transforms.common.messages import escaped, shell_command

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20)


@given(TEXTS)
def test_what_is_escaped_prints_and_reads_back(text):
    shown = escaped(text)
    assert shown.isprintable()
    if "\\" not in text:
        printed = "".join(c for c in text if c.isprintable())
        assert not printed or set(printed) <= set(shown)
    assert escaped("\x1b[2J\x9b\u202e\udcff") == r"\x1b[2J\x9b\u202e\udcff"
    assert escaped("a\nb\tc", keep="\n") == "a\nb\\tc"


def test_no_name_is_a_command_to_a_ci_server():
    for name in ("::error::a", " ::Add-Mask::a", "::error title=b::a", "##vso[a]", "x ##[error]a",
                 "##VSO[a]", "##teamcity[a]"):  # fmt: skip
        shown = escaped(name)
        assert not shown.lstrip().startswith("::")
        assert not any(start in shown.lower() for start in ("##vso[", "##[", "##teamcity["))
    for name in ("::1:8501", "a::b", "std::vector", "## title", "::", "::a"):
        assert escaped(name) == name


@settings(max_examples=8)
@given(st.lists(TEXTS, min_size=20, max_size=20))
def test_a_shell_reads_each_word_back(words):
    words = [*words, "\x1b7", "a'b\\c\n", "\udcff.pb"]
    command = shell_command("printf", r"%s\0", *words)
    assert command.isprintable()
    found = subprocess.run(["bash", "-c", command], capture_output=True, check=True).stdout
    assert found.split(b"\0")[:-1] == [os.fsencode(word) for word in words]
