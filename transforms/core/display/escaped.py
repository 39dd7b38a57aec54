"""Text from files, file names and the network, made safe for terminals and text files."""

import shlex


def escaped(text: str, keep: str = "") -> str:
    r"""Return a text whose characters that do not print are escapes such as `\x1b` or `\n`.

    These are control codes, marks that change the direction of writing, and bytes of a file name
    that are not UTF-8. The characters of `keep` stay.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


def shell_word(text: str) -> str:
    r"""Return a text as one word of a shell command; Bash and Zsh read `$'\x1b'` back."""
    if text.isprintable():
        return shlex.quote(text)
    literal = text.replace("\\", "\\\\").replace("'", "\\'")
    escapes = "".join(c if c.isprintable() else _shell_escape(c) for c in literal)
    return f"$'{escapes}'"


def shell_command(*words: str) -> str:
    """Return a shell command of these words."""
    return " ".join(map(shell_word, words))


def _shell_escape(character: str) -> str:
    """Return the octal escapes of a character's bytes, which no digit behind them changes."""
    encoded = character.encode("utf-8", "surrogateescape")
    return "".join(f"\\{byte:03o}" for byte in encoded)
