"""How much of an answer is taken before the client calls it no answer: servers err, and memory is finite."""

ODD_BODY_BYTES = 1 << 16  # kept of a body that is no event stream
MOST_HEAD_BYTES = 1 << 18  # without a byte of the body: header, trailer, chunk extensions
LONGEST_LINE_BYTES = 1 << 20  # of an event stream
MOST_BODY_BYTES = 1 << 28  # of one answer


def endless(body_bytes: int, unbroken: int) -> str | None:
    """What is too long about a body of so many bytes, the last `unbroken` of them without a line end."""
    if unbroken > 2 * LONGEST_LINE_BYTES:
        return f"A line of the answer is longer than {LONGEST_LINE_BYTES >> 20} MiB."
    if body_bytes > MOST_BODY_BYTES:
        return f"The answer is longer than {MOST_BODY_BYTES >> 20} MiB."
    return None
