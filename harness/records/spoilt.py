"""Which failed checks of a run spoil a figure."""

from collections.abc import Sequence

from harness.records.reader import Run


def spoiling(run: Run, paths: Sequence[str], aside: Sequence[str] = ()) -> tuple[str, ...]:
    """Failed checks that spoil any of these summary keys, in a few words (spoiling `a` spoils `a.b` too).

    aside: names of checks to leave out.
    """
    return tuple(
        problem(check)
        for check in run.validity
        if check["ok"] is False
        and check["check"] not in aside
        and any(
            path == key or path.startswith(f"{key}.") for path in paths for key in check.get("spoils") or ()
        )
    )


def problem(check: dict[str, object]) -> str:
    """What a failed check found, in a few words."""
    return str(check.get("problem") or check["check"])
