"""How much of the past must stay, against settings whose losses are known."""

from dataclasses import replace

import pytest

from harness.compare.advice import advise
from harness.compare.asked import asked
from harness.records.reader import Run
from harness.report.figure import FigureSection
from harness.report.labels import setting_labels
from harness.report.tradeoff import tradeoff_sections
from tests.support.advice_runs import EXACT, RIGHT, a_run, terms


def kept(
    run_id: str,
    rate: float,
    evict: str,
    share: float | None,
    lost: int | None,
    quant: str = "none",
    shares: str = "none",
    **backend: str,
) -> Run:
    """`lost` answers fewer of 200 (None: not measured), and KV memory in proportion to what stays."""
    run = a_run(run_id, rate, right=None if lost is None else [False] * lost + RIGHT[lost:])
    kv = {
        "evict": evict,
        "quant": quant,
        "share": shares,
        "budget": {"fraction": share},
    }
    memory = {"kv_per_request_bytes": 8e6 * (share or 1) / (4 if quant == "int8" else 1)}
    return replace(
        run,
        config={**run.config, "backend": {**EXACT, "kv": kv, **backend}},
        summary={**run.summary, "memory": memory, "ttft_ms": {"p50": 100.0}},
    )


def sections(runs: list[Run]) -> list[FigureSection]:
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
    assert "snapkv: 50 % of the past is likely enough (tried: 75 %, 50 % and 25 %)." in told
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


def test_a_share_of_which_no_loss_is_known_is_not_called_enough(runs: list[Run]):
    (section,) = sections([runs[0], kept("r1", 110, "snapkv", 0.75, 0), kept("r2", 120, "snapkv", 0.5, None)])
    told = "\n".join(section.sentences)
    assert "snapkv: 75 % of the past is enough (tried: 75 %)." in told
    (section,) = sections([runs[0], kept("r2", 120, "snapkv", 0.5, None)])
    assert section.sentences[-1] == "snapkv: what it loses at 50 % is not known."
    (section,) = sections([runs[0], kept("r3", 120, "snapkv", 0.5, 5)])
    assert section.sentences[-1] == "snapkv: even 50 % of the past likely loses too much."


def test_only_exact_keys_and_values_by_full_weights_keep_everything(runs: list[Run]):
    shared = kept("s1", 200, "none", None, 0, shares="minicache")
    rounded = kept("s2", 210, "none", None, 0, weight_dtype="int8")
    (section,) = sections([shared, rounded, *runs])
    drawn = section.figures[0].data.groupby("method")["share"].max()
    assert {"everything", "minicache", "int8 weights"} <= set(drawn.index)
    assert sections([shared, *runs[1:4]]) == sections([rounded, *runs[1:4]]) == []


def test_there_is_no_section_where_nothing_was_evicted_to_a_share(runs: list[Run]):
    assert sections([runs[0], runs[6]]) == []
    assert sections(runs[1:]) == []  # nothing keeps everything, so there is nothing to hold them against
