"""The command lines of the small commands: KEY=VALUE and nothing else."""

from collections.abc import Mapping, Sequence

from harness.core.errors import UsageError


def key_values(
    arguments: Sequence[str], free: Sequence[str], choices: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """The values by their keys, the last of each. free: keys that take any value; choices: what others may be.

    Raises UsageError for a word that is no KEY=VALUE, for another key and for a value that is no choice.
    """
    given: dict[str, str] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or not value:
            raise UsageError(f"{argument!r} is not understood: write key=value, see --help.")
        if key not in free and key not in choices:
            raise UsageError(f"{key!r} is no key of this command. Keys: {', '.join((*choices, *free))}.")
        if key in choices and value not in choices[key]:
            raise UsageError(f"{key}={value} is unknown: choose one of {', '.join(choices[key])}.")
        given[key] = value
    return given
