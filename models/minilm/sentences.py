"""Sentences of every Python installation, under the Python Software Foundation's licence.

Docstrings of the standard library are short and about one function; the help topics come from the
language reference.
"""

import ast
import re
import sysconfig
from pathlib import Path

_MODULES = ("argparse", "ast", "asyncio", "calendar", "collections", "concurrent", "configparser",
            "csv", "datetime", "decimal", "difflib", "email", "fractions", "functools", "heapq",
            "http", "imaplib", "inspect", "ipaddress", "json", "logging", "mailbox", "mimetypes",
            "multiprocessing", "pathlib", "pickle", "random", "shutil", "smtplib", "statistics",
            "string", "subprocess", "tarfile", "tempfile", "textwrap", "threading", "typing",
            "unittest", "urllib", "uuid", "wave", "xml", "zipfile")  # fmt: skip
_WORDS = range(6, 60)


def library_docstrings(count: int) -> list[str]:
    """Return that many sentences from docstrings of the standard library, spread evenly."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = [path for name in _MODULES for path in sorted(root.glob(f"{name}*/**/*.py"))]
    files += [root / f"{name}.py" for name in _MODULES if (root / f"{name}.py").is_file()]
    found: list[str] = []
    for path in files:
        tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
        kinds = (ast.AsyncFunctionDef, ast.ClassDef, ast.FunctionDef, ast.Module)
        for node in ast.walk(tree):
            if isinstance(node, kinds):
                found += _sentences(ast.get_docstring(node) or "")
    return _spread(found, count)


def help_topics(count: int) -> list[str]:
    """Return that many sentences from the language reference, spread evenly."""
    from pydoc_data.topics import topics

    return _spread([each for topic in topics.values() for each in _sentences(topic)], count)


def _sentences(text: str) -> list[str]:
    """Return the sentences of prose in a text."""
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.startswith((" ", ">>>")):
            continue
        for each in re.split(r"(?<=[.!?])\s+(?=[A-Z])", " ".join(paragraph.split())):
            if len(each.split()) in _WORDS and each[0].isupper() and each.endswith("."):
                found.append(each)
    return found


def _spread(sentences: list[str], count: int) -> list[str]:
    different = list(dict.fromkeys(sentences))
    return [different[number * len(different) // count] for number in range(count)]
