"""Keeps keys out of records: a server may repeat in its error what it was sent, a command line may hold one."""

import re
from collections.abc import Mapping, Sequence

_HIDDEN = "(hidden)"
_WORD_BREAK = re.compile(r"[^a-z0-9]+")
# A name is a secret's where it ends in one of the first words, or holds one of the second anywhere.
_LAST = frozenset({"key", "keys", "token", "auth", "credential", "credentials"})
_ANYWHERE = frozenset({"apikey", "password", "passwd", "passphrase", "secret", "secrets"})
_SHORTEST = 6  # anything shorter is no key, and hiding it would garble ordinary words


def secrets_of(headers: Mapping[str, str]) -> list[str]:
    """The words of all header values that are long enough to be a key."""
    words = [word for value in headers.values() for word in value.split()]
    return [word for word in words if len(word) >= _SHORTEST and word != "Bearer"]


def hidden(text: str | None, secrets: list[str]) -> str | None:
    """`text` with every secret replaced."""
    if text is not None:
        for secret in secrets:
            text = text.replace(secret, "(key)")
    return text


def without_secrets(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command line with the values of those whose name speaks of a secret replaced.

    `--api-key=…`, `--api-key …` and `HF_TOKEN=…` hide; `--max-tokens=…` and `--tokenizer …` do not.
    """
    shown: list[str] = []
    hide_next = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if hide_next and not argument.startswith("-"):
            shown.append(_HIDDEN)
        else:
            shown.append(f"{name}={_HIDDEN}" if equals and _speaks_of_secret(name) else argument)
        hide_next = not equals and argument.startswith("-") and _speaks_of_secret(name)
    return shown


def _speaks_of_secret(name: str) -> bool:
    words = [word for word in _WORD_BREAK.split(name.lower()) if word]
    return bool(words) and (words[-1] in _LAST or not _ANYWHERE.isdisjoint(words))
