"""The project's own error tree: whatever a user can run into is one of these, and one place prints them.

Every message is one sentence that says what is wrong, followed by what to do about it. A traceback is never
shown for these; it goes to the run's log.
"""


class HarnessError(Exception):
    """Something failed that is not the harness's own fault; the process ends with exit code 1."""

    exit_code = 1


class UsageError(HarnessError):
    """What was asked for is impossible or misspelt; nothing was started. Exit code 2."""

    exit_code = 2


class ModelError(HarnessError):
    """The model's files are missing, damaged or of a kind that is not supported."""


class EngineError(HarnessError):
    """An engine did not start, died, or does not answer as it should."""


class EndpointError(EngineError):
    """A server that somebody else runs refused the harness (401, unknown model, unreachable)."""


class RecordError(HarnessError):
    """A recorded run is missing, damaged, or of a schema this version cannot read."""


class Oversaturated(HarnessError):
    """A probe of a search was ended on purpose: the server fell behind. It is an answer, not a failure."""
