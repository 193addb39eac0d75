"""What the words of a report mean; docs/metrics.md says it at length."""

GLOSSARY = (
    ("TTFT from schedule", "What a user waits for the first token: from the instant the request was due."),
    ("TTFT from send", "From the first byte sent to the first token: what most other tools call TTFT."),
    (
        "TPOT",
        "Time per output token after the first: (last − first) / (tokens − 1), for answers of two or more.",
    ),
    ("ITL", "Gap between two consecutive events of an answer; its p99 is the stutter a reader notices."),
    ("E2E", "From the instant a request was due to its last token."),
    ("p50, p95, p99", "Half, 95 of 100, 99 of 100 values are at most this. p99 is blank below 100 values."),
    (
        "Output tokens/s",
        "Tokens that arrived inside the measured window, of all requests together, per second.",
    ),
    ("Requests/s", "Successful requests that ended inside the measured window, per second."),
    (
        "Cost",
        "Price of the machine for an hour, over the million output tokens and the queries that it answers in one; "
        "of a user-hour: over the users served at once.",
    ),
    ("Measured window", "From the first measured request being due to the last end, or to the set duration."),
    ("KV per request", "KV cache in use divided by running requests, averaged over samples."),
    (
        "KV per token",
        "What one more token of context takes: the slope of KV used over the tokens that requests hold, so that "
        "rounding up to blocks cancels.",
    ),
    (
        "Peak memory",
        "Largest memory of the engine's whole process tree, shared pages divided among their users.",
    ),
    ("Overhead", "What of the peak is neither weights nor KV cache."),
    (
        "Perplexity",
        "How surprised the model is by a fixed text read through this KV cache; lower is better. "
        "Compare it only between runs of the same model.",
    ),
    ("✗", "A failed check says that something other than the engine may have made this figure."),
    ("–", "Not known, or too few values to say. It never stands for 0."),
)
