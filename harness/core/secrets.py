"""Keeps keys out of records: a server may repeat in its error what it was sent."""

from collections.abc import Mapping

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
