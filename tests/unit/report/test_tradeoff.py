"""How much of the past must stay, against settings whose losses are known."""

from dataclasses import replace

import pytest

from harness.compare.advice import advise
from harness.compare.asked import asked
from harness.records.reader import Run
from harness.report.labels import setting_labels
from harness.report.tradeoff import TradeoffSection, tradeoff_sections
from tests.support.advice_runs import EXACT, RIGHT, a_run, terms


def kept(run_id: str, rate: float, evict: str, share: float | None, lost: int, quant: str = "none") -> Run:
    """`lost` answers fewer of 200, and KV memory in proportion to what stays."""
    run = a_run(run_id, rate, right=[False] * lost + RIGHT[lost:])
    kv = {"evict": evict, "quant": quant, "budget": {"fraction": share}}
    memory = {"kv_per_request_bytes": 8e6 * (share or 1) / (4 if quant == "int8" else 1)}
    return replace(
        run,
        config={**run.config, "backend": {**EXACT, "kv": kv}},
        summary={**run.summary, "memory": memory, "ttft_ms": {"p50": 100.0}},
    )


def sections(runs: list[Run]) -> list[TradeoffSection]:
    return tradeoff_sections([advise(found, terms()) for found in asked(runs, setting_labels(runs))])


@pytest.fixture
def runs() -> list[Run]:
    return [
        kept("r0", 100, "none", None, 0),
        kept("r1", 110, "snapkv", 0.75, 1),
        kept("r2", 120, "snapkv", 0.5, 3),
        kept("r3", 140, "snapkv", 0.25, 60),
        kept("r4", 130, "streaming_llm", 0.5, 50),
        kept("r5", 150, "streaming_llm", 0.25, 90),
        kept("r6", 105, "none", None, 0, "int8"),
    ]


def test_the_cheapest_within_the_loss_is_recommended(runs: list[Run]):
    (section,) = sections(runs)
    told = "\n".join(section.sentences)
    assert section.title == "How much of the past must stay: rag on kvcompress"
    assert told.startswith(
        "Take snapkv with 50 % of the past, the cheapest within the accepted loss: 16.7 % saved;"
    )
    assert "4.00 MB of KV a request instead of 8.00 MB" in told
    assert "least memory within the accepted loss: int8, 2.00 MB" in told
    assert "snapkv: 50 % of the past is enough (tried: 75 %, 50 % and 25 %)." in told
    assert "streaming_llm: even 50 % of the past loses too much." in told


def test_every_setting_is_drawn_and_marked_by_whether_it_may_be_taken(runs: list[Run]):
    (figure,) = sections(runs)[0].figures
    table = figure.data[figure.data["figure"] == "facts recalled, %"].set_index(["method", "share"])
    assert table.loc[("everything", 1.0), "value"] == pytest.approx(95)
    assert table.loc[("snapkv", 0.25), "value"] == pytest.approx(65)
    assert dict(table["may_be_taken"]) == {
        ("everything", 1.0): True,
        ("int8", 1.0): True,
        ("snapkv", 0.75): True,
        ("snapkv", 0.5): True,
        ("snapkv", 0.25): False,
        ("streaming_llm", 0.5): False,
        ("streaming_llm", 0.25): False,
    }


def test_where_everything_else_loses_everything_is_kept(runs: list[Run]):
    (section,) = sections([runs[0], runs[3], runs[4]])
    assert section.sentences[0].startswith("Keep everything")


def test_there_is_no_section_where_nothing_was_evicted_to_a_share(runs: list[Run]):
    assert sections([runs[0], runs[6]]) == []
    assert sections(runs[1:]) == []  # nothing keeps everything, so there is nothing to hold them against
