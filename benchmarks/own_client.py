"""This project's client as a program of its own, so that it is measured as the peers are.

    python benchmarks/own_client.py BASE_URL STREAMS REQUESTS TOKENS OUT

Sends REQUESTS of TOKENS on STREAMS in a closed loop, parses what came as a run of the harness does, and writes what
it found to OUT, in the fields of peer_reports.Report.
"""

import dataclasses
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.peer_reports import Report
from harness.calibrate.loads import Load, client_job, two_cores
from harness.calibrate.words import words_tokenizer
from harness.client import measure
from harness.metrics.latency import event_gaps, latencies, request_keys


def run(base_url: str, streams: int, requests: int, tokens: int) -> Report:
    load = Load("", requests, tokens, itl_us=0, options={"concurrency": streams})
    _, cpus = two_cores(sorted(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        job = client_job(load, base_url, folder / "client", words_tokenizer(folder), cpus)
        measured = measure(job, lambda progress: None)
    ttft = latencies(measured.requests)["ttft_from_send_ms"].dropna().to_numpy()
    gaps = event_gaps(request_keys(measured.events), measured.events["ns"].to_numpy())
    return Report(
        ttft_mean=float(ttft.mean()),
        ttft_p99=float(np.percentile(ttft, 99)),
        itl_mean=float(gaps.mean()),
        itl_p99=float(np.percentile(gaps, 99)),
        itl_of="gaps",
        completed=int((measured.requests["ok"] & (measured.requests["output_tokens"] == tokens)).sum()),
    )


if __name__ == "__main__":
    base_url, *counts, out = sys.argv[1:]
    Path(out).write_text(json.dumps(dataclasses.asdict(run(base_url, *map(int, counts)))))
