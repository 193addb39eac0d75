"""`experiment=context_scaling` as a whole command, small, against a server that knows its own times."""

from pathlib import Path

from tests.support.command_line import records, run
from tests.support.fixtures import scripted_server

CASES = (
    "{tokens:64,at_once:1,running:1,requests:2},{tokens:128,at_once:1,running:1,requests:2},"
    "{tokens:256,at_once:1,running:1,requests:2},{tokens:64,at_once:4,running:4,requests:8},"
    "{tokens:64,at_once:4,running:1,requests:8}"
)


def test_the_experiment_says_how_everything_grows(tmp_path: Path) -> None:
    with scripted_server("--ttft-ms", "30", "--itl-ms", "2") as server:
        small = [
            f"experiment.case={CASES}",
            "workload.output_tokens=8",
            f"backend.base_url={server.base_url}",
        ]
        done = run(["harness", "experiment=context_scaling", *small], tmp_path)
    assert done.status == 0, done.err
    found = records(tmp_path / "results")
    asked = [
        (record["config"]["workload"]["prompt_tokens"], record["config"]["load"]["concurrency"])
        for record in found
    ]
    assert asked == [(64, 1), (128, 1), (256, 1), (64, 4), (64, 4)]
    assert [record["config"]["backend"]["max_running"] for record in found] == [1, 1, 1, 4, 1]
    assert "Time to first token grows with context^" in done.out
    assert "With 4 requests of 64 tokens at once, continuous batching gives" in done.out
    page = Path(tmp_path, done.last_line).read_text()
    assert "How KV memory grows is not known" in page  # this server does not tell
    assert (tmp_path / Path(done.last_line).parent / "data" / "scaling-batching.csv").is_file()
