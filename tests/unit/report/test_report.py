"""The page and the command that makes it."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from harness.core.errors import RecordError
from harness.records.reader import find_runs, read_run
from harness.report import write_report
from tests.support.synthetic_runs import Schedule, write_failed_run, write_run

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)>"


class Page(HTMLParser):
    """Tags with their attributes, in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))


def report(folder: Path, patterns: list[str] | None = None) -> str:
    return write_report(find_runs(patterns or ["r*"], folder), folder / "report").read_text()


def html_figures(page: Page) -> int:
    return sum(tag == "figure" for tag, _ in page.tags)


def test_the_page_is_self_contained_and_its_identifiers_are_unique(tmp_path: Path):
    write_run(tmp_path, "r1", Schedule(jitter=0.2))
    write_run(tmp_path, "r2", Schedule(jitter=0.2, requests=200))  # its timeline is an image
    page = Page(report(tmp_path))
    assert [attributes for tag, attributes in page.tags if tag == "script"] == [{}]
    identifiers = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    for tag, attributes in page.tags:
        for name in ("src", "href", "xlink:href"):
            target = attributes.get(name)
            assert target is None or target.startswith(("#", "data:", "data/", "figures/")), (tag, target)
    beside = {
        a["href"] for t, a in page.tags if t == "a" and (a["href"] or "").startswith(("data/", "figures/"))
    }
    timelines = sum(name.startswith("data/timeline") for name in beside)
    assert timelines == 2 and len(beside) == 3 * html_figures(page) - timelines  # those as SVG and CSV alone
    for target in beside:
        assert (tmp_path / "report" / str(target)).is_file()


def test_the_data_beside_a_figure_is_what_was_measured(tmp_path: Path):
    write_run(tmp_path, "r1", Schedule(requests=4, slots=4, warmup=1, ttft_ms=80, gap_ms=20))
    report(tmp_path)
    data = tmp_path / "report" / "data"
    assert set(pd.read_csv(data / "ttft.csv")["ms"]) == {80}
    timeline = pd.read_csv(data / "timeline-r1.csv")
    assert timeline["first_s"].tolist() == pytest.approx([0.08] * 4)
    load = pd.read_csv(data / "load.csv")
    assert load["requests_in_flight"].iloc[1:-1].tolist() == pytest.approx([4] * 10)


def test_every_figure_is_there_and_says_what_it_shows(tmp_path: Path):
    write_run(tmp_path, "r1")
    html = report(tmp_path)
    for name in ("ttft", "gaps", "load", "memory"):
        assert f'<figure id="{name}" aria-label="' in html
    assert html.count("<figure") == 5


def test_each_line_of_a_figure_is_marked_with_its_series(tmp_path: Path):
    write_run(tmp_path, "r1", workload="chat")
    write_run(tmp_path, "r2", workload="rag")
    write_run(tmp_path, "r3", workload="chat")  # a repeat of the first
    ttft = re.search(r'<figure id="ttft".*?</figure>', report(tmp_path), re.DOTALL)
    assert ttft is not None
    assert re.findall(r'<g data-series="(\d+)"', ttft[0]) == ["0", "1", "0"]
    assert re.findall(r'<li data-series="(\d+)"', ttft[0]) == ["0", "1"]


def test_what_comes_from_models_servers_and_configurations_is_escaped(tmp_path: Path):
    write_run(
        tmp_path,
        "r1",
        Schedule(errors={1: HOSTILE}),
        backend=HOSTILE,
        workload=HOSTILE,
        fingerprint={"notes": [HOSTILE], "machine": {"cpu": HOSTILE}},
    )
    write_failed_run(tmp_path, "r2", HOSTILE, backend=HOSTILE)
    page = Page(html := report(tmp_path))
    tags = [tag for tag, _ in page.tags]
    assert tags.count("script") == 1
    assert "img" not in tags
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert "&lt;script&gt;" in html


def test_the_policy_lets_the_one_script_run_and_no_other(tmp_path: Path):
    write_run(tmp_path, "r1", backend=HOSTILE)
    html = report(tmp_path)
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = (a["content"] for tag, a in Page(html).tags if tag == "meta" and "http-equiv" in a)
    directives = dict(part.split(maxsplit=1) for part in str(policy).split("; "))
    assert directives == {
        "default-src": "'none'",
        "script-src": f"'sha256-{digest}'",
        "style-src": "'unsafe-inline'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_a_cell_sorts_by_the_value_itself_and_an_unknown_one_by_nothing(tmp_path: Path):
    write_run(tmp_path, "r1", perplexity=1234.5678)
    write_run(tmp_path, "r2", perplexity=None)
    write_failed_run(tmp_path, "r3", "It ran out of memory.")
    cells = [
        a for _, a in Page(report(tmp_path)).tags if (a.get("data-label") or "").startswith("Perplexity, 95")
    ]
    assert [cell.get("data-value") for cell in cells] == ["1234.5678", None]
    rates = [a for _, a in Page(report(tmp_path)).tags if a.get("data-label") == "Output, tokens/s"]
    measured = read_run("r1", tmp_path).summary["output_tokens_per_s"]
    assert [float(cell["data-value"] or 0) for cell in rates] == [measured, measured]


def test_every_table_of_runs_can_be_sorted_by_every_column(tmp_path: Path):
    for name, backend in (("r1", "openvino"), ("r2", "vllm")):
        write_run(tmp_path, name, Schedule(errors={1: "timeout"}), backend=backend)
    for table in re.findall(r"<table class=\"[^\"]*cards.*?</table>", report(tmp_path), re.DOTALL):
        page = Page(table)
        headings = [
            attributes for tag, attributes in page.tags if tag == "th" and attributes["scope"] == "col"
        ]
        assert len(headings) > 3
        assert {heading.get("data-sort") for heading in headings} == {"number", "text"}
        assert all(
            "data-runs" in attributes for tag, attributes in page.tags[2 + len(headings) :] if tag == "tr"
        )


def test_all_that_is_about_a_run_says_so(tmp_path: Path):
    """Rows, notes, timelines and configurations of the second run, and the lines of its series."""
    write_run(tmp_path, "r1")
    write_run(
        tmp_path, "r2", Schedule(errors={1: "timeout"}), workload="rag", fingerprint={"notes": ["A note."]}
    )
    page = Page(report(tmp_path))
    about = [(tag, attributes) for tag, attributes in page.tags if attributes.get("data-runs") == "2"]
    # its row, the box of notes and its note, its timeline, the table of errors, its configuration; names in legends
    assert [tag for tag, _ in about if tag != "li"] == ["tr", "div", "p", "figure", "tr", "details"]
    assert sum(tag == "li" for tag, _ in about) >= 5
    both = {a["id"] for tag, a in page.tags if tag == "figure" and a.get("class") == "by-series"}
    assert both >= {"ttft", "gaps", "load", "memory", "kv-requests"}


def test_a_spoilt_figure_stands_beside_its_failed_check(tmp_path: Path):
    write_run(tmp_path, "r1", Schedule(errors={1: "timeout"}))
    html = report(tmp_path)
    assert re.search(
        r'<td class="figure spoilt"[^>]*title="Spoilt by: requests failed">[^<]*&nbsp;✗</td>', html
    )
    assert "4.17 % of requests failed (limit 0 %)" in html
    assert "the stream broke off (timeout)" in html
    # memory is spoilt by nothing here
    assert re.search(
        r'<td class="figure" data-value="[^"]+" data-label="Peak memory, engine">[^<✗]*</td>', html
    )


def test_a_failed_run_is_listed_with_its_reason(tmp_path: Path):
    write_run(tmp_path, "r1")
    write_failed_run(tmp_path, "r2", "It ran out of memory.")
    assert "It ran out of memory." in report(tmp_path)


def test_runs_of_which_none_was_measured_still_make_a_page(tmp_path: Path):
    write_failed_run(tmp_path, "r1", "It ran out of memory.")
    html = report(tmp_path)
    assert "No run was measured" in html
    assert "<figure" not in html


def test_a_run_in_which_every_request_failed(tmp_path: Path):
    write_run(tmp_path, "r1", Schedule(requests=4, errors=dict.fromkeys(range(4), "http_503")))
    assert "http_503" in report(tmp_path)


def test_model_notes_stand_beside_the_speeds(tmp_path: Path):
    write_run(tmp_path, "r1", fingerprint={"notes": ["The raw Q4_1 file is read with wrong zero points."]})
    assert "wrong zero points" in report(tmp_path).split('<section id="waits"')[0]


def test_the_same_runs_give_the_same_page(tmp_path: Path):
    write_run(tmp_path, "r1", Schedule(requests=300, jitter=0.3))
    assert report(tmp_path) == report(tmp_path)


def test_no_runs_and_an_unwritable_folder_say_what_to_do(tmp_path: Path):
    with pytest.raises(RecordError, match="python -m harness"):
        write_report([], tmp_path)
    write_run(tmp_path, "r1")
    (tmp_path / "taken").write_text("")
    with pytest.raises(RecordError, match="another folder"):
        write_report(find_runs(["r1"], tmp_path), tmp_path / "taken")


def test_the_page_opens_with_advice_where_settings_can_be_ranked(tmp_path: Path):
    backend = {"name": "openvino", "dtype": "f32"}
    for name, dtype, gap in (("r1", "f16", 20), ("r2", f"int8{HOSTILE}", 16)):
        config = {"backend": backend | {"kv_dtype": dtype}, "slo": {"name": "x", "ttft_p50_ms": 100.0}}
        write_run(tmp_path, name, Schedule(gap_ms=gap), price=0.5, config=config)
    html = report(tmp_path)
    assert HOSTILE not in html
    opening = html[html.index('class="answer') : html.index("</header>")]
    assert "the cheapest of 2 that keep the SLO" in opening
    assert "TTFT p50 80.0 ms of 100 ms" in opening
    assert "repeats=5" in html  # what to measure next
    shares = re.findall(
        r'<td class="figure" data-value="([^"]+)" data-label="To the best">([^<]+)</td>', html
    )
    assert shares[0] == ("0.0", "best")  # nothing unknown: it sorts as 0
    assert all(re.fullmatch(r"[+−]\d+ %", text) for _, text in shares[1:]) and len(shares) == 2


def test_one_run_without_limits_or_price_is_described_and_not_advised(tmp_path: Path):
    write_run(tmp_path, "r1")
    html = report(tmp_path)
    assert "What to take" not in html
    assert "first token after" in html


def test_each_run_says_the_command_that_measures_it_again(tmp_path: Path):
    write_run(tmp_path, "r1", Schedule(slots=7, seed=3), backend="kvcompress")
    write_run(tmp_path, "r2", workload="x" * 300)  # no file of conf/ can have that name
    html = report(tmp_path)
    (line,) = re.findall(r"<h3>Measure it again</h3>\n<pre>(python -m harness [^<]*)</pre>", html)
    assert {"backend=kvcompress", "load.concurrency=7", "seed=3"} <= set(line.split())


def test_what_no_command_can_make_again_has_none(tmp_path: Path):
    write_run(tmp_path, "r1", backend="gone")
    write_run(tmp_path, "r2", config={"load": None})
    write_run(tmp_path, "r3", config={"load": {"rate": 3}})
    write_run(tmp_path, "r4", config={"hardware": {"name": "gone"}})
    write_run(tmp_path, "r5", config={"quality": {"gone": {"prompts": 1}}})
    assert "Measure it again" not in report(tmp_path)


def test_a_run_that_failed_after_measuring_is_in_no_line(tmp_path: Path):
    write_run(tmp_path, "r1", backend="vllm", status="failed", reason="It died.")
    write_run(tmp_path, "r2")
    html = report(tmp_path)
    assert 'data-runs=""' not in html
    ttft = re.search(r'<figure id="ttft".*?</figure>', html, re.DOTALL)
    assert ttft is not None
    assert re.findall(r'<li data-series="(\d+)" data-runs="([^"]*)"', ttft[0]) == [("1", "2")]
    assert re.findall(r'<g data-series="(\d+)"', ttft[0]) == ["1"]
    assert set(pd.read_csv(tmp_path / "report" / "data" / "memory.csv")["run"]) == {"r2"}


def test_what_differs_between_fingerprints_is_listed_with_its_first_values(tmp_path: Path):
    for place in range(9):
        write_run(
            tmp_path, f"r{place}", fingerprint={"packages": {"torch": f"2.{place}", HOSTILE: place % 2}}
        )
    write_failed_run(tmp_path, "r9", "no memory", fingerprint={"kernel": "another"})
    listed = report(tmp_path).partition("What else was not the same")[2].partition("</details>")[0]
    assert "<dt>packages.torch</dt><dd>2.0 | 2.1 | 2.2 | 2.3 | 2.4 | 2.5 | and 3 more</dd>" in listed
    assert "<dd>0 | 1</dd>" in listed and "<script" not in listed
    assert "another" not in listed and listed.count("<dt>") == 2
