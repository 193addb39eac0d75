"""What a recorded run holds: the columns of its tables, in words.

Schema history of run.json and the tables beside it:
1  first version
"""

SCHEMA = 1

# Fields of a run's fingerprint that say what was measured: runs that differ there are not comparable.
IDENTITY = ("plan_sha256", "model_sha256")

# complete: everything planned was measured. partial: interrupted, or the engine died; what came is there.
# failed: no measured request succeeded; run.json says why, and the tables hold whatever was tried.
STATUSES = ("complete", "partial", "failed")

# run.json, beside `schema`.
# started_at: wall clock, ISO 8601 with zone, the only one in a run. reason: why a run is failed or partial.
# fingerprint: plan_sha256 says what was asked; notes: a list of sentences shown beside speeds;
# caveats: words that stand in the run's name wherever a figure of it is shown.
# launch: command lines of the engine by phase ("speed", "quality"). window: of metrics.window.Window.
# sweep: what the runs of one command share, null for none. client: how the measuring process itself fared.
# pace: what fixed work took `before` the engine ran and `after`, each of metrics.pace.Pace; {} where unknown.
RUN_KEYS = (
    "id",
    "status",
    "reason",
    "started_at",
    "config",
    "fingerprint",
    "summary",
    "validity",
    "launch",
    "window",
    "sweep",
    "client",
    "pace",
)

# requests.parquet: one row a request, warm-up included and labelled. Instants are CLOCK_MONOTONIC
# nanoseconds of the client's machine (nullable Int64: an instant that never came is missing, never 0).
REQUEST_COLUMNS = {
    "phase": "string",  # "warmup" or "measured"
    "index": "int64",  # position in the plan, within its phase
    "session": "int64",
    "turn": "int64",
    "ok": "bool",
    "error": "string",  # kind (connect, http_429, stream_error, truncated, …), missing if ok
    "error_detail": "string",  # the server's own words, at most 500 characters
    "http_status": "Int64",
    "scheduled_ns": "Int64",
    "sent_ns": "Int64",
    "headers_ns": "Int64",
    "first_ns": "Int64",
    "last_ns": "Int64",
    "end_ns": "Int64",
    "prompt_tokens": "int64",  # as planned (with real history: as sent)
    "prompt_tokens_usage": "Int64",  # as the server counted them
    "cached_tokens": "Int64",  # prompt tokens the server says it found in its prefix cache
    "output_tokens": "int64",  # n of METRICS: usage, else ids, else the tokenizer's count of the whole text
    "output_tokens_source": "string",  # "usage", "ids" or "tokenizer"
    "output_tokens_tokenizer": "Int64",  # the tokenizer's count of the whole text, for the agreement check
    "output_tokens_planned": "Int64",  # missing where the length was free
    "finish_reason": "string",
    "events": "int64",  # stream events that carried text or ids
    "reads": "int64",  # socket reads that completed at least one such event
    "retries": "Int64",  # times it was sent again after an error (load.retries); sent_ns is the first time's
    "unexpected": "int64",  # stream events nobody expected, kept in `unexpected_sample`
    "unexpected_sample": "string",  # the first of them, at most 500 characters
    "text": "string",  # what was generated
    "expected": "string",  # JSON list of strings an ideal answer contains
    "tags": "string",  # JSON object
}

# events.parquet: one row a stream event that carried text or token ids, in order of arrival.
EVENT_COLUMNS = {
    "phase": "string",
    "index": "int32",  # request
    "ns": "int64",  # when the bytes that complete the event had arrived
    "tokens": "int32",  # tokens in this event
    "estimated": "bool",  # tokens mapped from the whole text's offsets, since the stream does not tell
}

# next_tokens.parquet, where quality=agreement was asked for and the engine has a route: a row for each token whose
# probability is known at a position of a fixed text, that of the text's own token and of the most probable ones.
NEXT_TOKEN_COLUMNS = {
    "prompt": "int16",  # which piece of text
    "position": "int16",  # in the part of it that is judged
    "token": "int32",
    "log_prob": "float32",  # natural, given all of the text before
}

# telemetry.parquet: one row a sample, on the same clock; a value that could not be read is missing.
# Columns beyond these are the common names of harness.core.metric_names.
TELEMETRY_COLUMNS = {
    "ns": "int64",
    "pss_bytes": "Int64",  # engine's whole process tree, shared pages divided among their users
    "engine_cpu_s": "float64",  # user + system of that tree since it started
    "system_cpu_s": "float64",  # CPU time of everything on the machine since it started, idle time left out
    "gpu_bytes": "Int64",
    "gpu_utilisation": "float64",  # 0 to 1
    "energy_j": "float64",  # since the first sample
}
