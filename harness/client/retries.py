"""Which failures may be tried again: those after which nobody can have computed an answer that was seen."""

_UNANSWERED = frozenset({"connect", "timeout_connect", "disconnected"})
_NOT_NOW = frozenset({408, 425, 429, 500, 502, 503, 504})


def may_retry(kind: str) -> bool:
    """Whether an error of this kind may be tried again.

    A request that ran into a timeout of its answer may not: it would hide how slow the server is. Nor one whose
    stream broke off: what it cost the server is spent.
    """
    return kind in _UNANSWERED or kind in {f"http_{status}" for status in _NOT_NOW}
