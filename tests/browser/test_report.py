"""The report in a real browser: of records that look real, and of hostile ones."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.records.reader import find_runs, read_run
from harness.report import write_report
from tests.support.browser import chromium, set_viewport
from tests.support.synthetic_runs import Schedule, write_failed_run, write_run

pytestmark = pytest.mark.browser

HOSTILE = "</script><script>window.owned=1</script><img src=x onerror='window.owned=1'><svg onload='window.owned=1'>"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("chromium") / "profile") as browser:
        yield browser


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report over three workloads, one run with errors, one that failed, one that is hostile."""
    folder = tmp_path_factory.mktemp("results")
    write_run(folder, "r1", Schedule(jitter=0.3, requests=40, ttft_ms=150), workload="chat")
    write_run(folder, "r2", Schedule(jitter=0.3, requests=400, tokens=8, seed=1), workload="rag")
    write_run(folder, "r3", Schedule(jitter=0.3, ttft_ms=2000, errors={3: HOSTILE}), workload="summarization")
    write_failed_run(folder, "r4", f"The engine died: {HOSTILE}")
    write_run(
        folder,
        "r5",
        backend=HOSTILE,
        workload="word" * 60,  # nothing to break a line at
        config={"model": {"name": HOSTILE}, "x" * 200: "y" * 400},
        fingerprint={"notes": [HOSTILE], "model": HOSTILE, "machine": {"cpu": HOSTILE}},
    )
    return write_report(find_runs(["r*"], folder), folder / "report").as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_without_a_word_on_the_console_and_all_figures_are_drawn(
    driver: Any, address: str, scheme: str
):
    set_viewport(driver, 1280, scheme=scheme)
    driver.get(address)
    assert driver.get_log("browser") == []
    drawn = driver.execute_script(
        "return [...document.querySelectorAll('figure > svg')].map(s => [s.getBoundingClientRect().width,"
        " s.getBoundingClientRect().height, s.querySelectorAll('path, use, image').length])"
    )
    assert len(drawn) == 5 + 4  # five over all runs, and a timeline for each run that was measured
    assert all(width > 300 and height > 100 and shapes > 10 for width, height, shapes in drawn)


def test_the_series_have_the_colours_of_the_theme(driver: Any, address: str):
    colours = set()
    for scheme in ("light", "dark"):
        set_viewport(driver, 1280, scheme=scheme)
        driver.get(address)
        colours.add(
            driver.execute_script(
                "const line = document.querySelector('#ttft path[style*=\"--series-0\"]');"
                "return getComputedStyle(line).stroke"
            )
        )
    assert colours == {"rgb(0, 114, 178)", "rgb(58, 159, 224)"}


def test_in_the_dark_no_word_of_a_figure_is_black(driver: Any, tmp_path: Path):
    """Also none of what the peak consists of, whose bars have their names inside the figure."""
    made = read_run(write_run(tmp_path, "r1"))
    known = made.summary["memory"] | {"weights_bytes": 3e8, "overhead_bytes": 2e8, "kv_in_peak": "used"}
    run = replace(made, summary={**made.summary, "memory": known})
    set_viewport(driver, 1280, scheme="dark")
    driver.get(write_report([run], tmp_path / "report").as_uri())
    fills = driver.execute_script(
        "return [...document.querySelectorAll('#memory-parts svg text')].map(text => getComputedStyle(text).fill)"
    )
    assert len(fills) > 4
    assert "rgb(0, 0, 0)" not in fills


def test_hostile_words_are_shown_and_not_run(driver: Any, address: str):
    set_viewport(driver, 1280)
    driver.get(address)
    assert driver.execute_script("return window.owned === undefined && document.scripts.length === 1")
    assert driver.execute_script("return document.querySelectorAll('img, [onerror], [onload]').length") == 0
    assert driver.execute_script("return document.body.innerText.includes('<script>window.owned=1</script>')")


def test_even_what_got_into_the_page_unescaped_would_not_run(driver: Any, address: str):
    """The policy stands behind the escaping: scripts and handlers put into the page by force are refused."""
    set_viewport(driver, 1280)
    driver.get(address)
    driver.execute_script(
        "const script = document.createElement('script'); script.textContent = 'window.owned = 1';"
        "document.body.append(script);"
        "const place = document.createElement('div');"
        'place.innerHTML = \'<img src="x" onerror="window.owned = 2"><svg onload="window.owned = 3"></svg>\''
        " + '<button onclick=\"window.owned = 4\">press</button>';"
        "document.body.append(place); place.querySelector('button').click();"
        "const link = document.createElement('a'); link.href = 'javascript:window.owned = 5';"
        "document.body.append(link); link.click();"
    )
    refused = [entry["message"] for entry in driver.get_log("browser")]
    assert sum("Content Security Policy" in message for message in refused) >= 4
    assert driver.execute_script("return window.owned === undefined")


@pytest.mark.parametrize("width", [320, 380, 768, 1280])
def test_the_page_is_never_wider_than_the_screen(driver: Any, address: str, width: int):
    set_viewport(driver, width)
    driver.get(address)
    driver.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    too_wide = driver.execute_script(
        "return [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1"
        " && !e.closest('.scroll')).map(e => e.outerHTML.slice(0, 80))"
    )
    assert too_wide == []
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [1100, 1200])
def test_no_column_of_a_table_is_out_of_sight(driver: Any, address: str, width: int):
    set_viewport(driver, width)
    driver.get(address)
    hidden = driver.execute_script(
        "return [...document.querySelectorAll('.scroll')].map(s => s.scrollWidth - s.clientWidth)"
    )
    assert len(hidden) > 2
    assert max(hidden) <= 0


def test_on_a_phone_every_figure_of_the_table_stands_beside_its_name(driver: Any, address: str):
    set_viewport(driver, 380)
    driver.get(address)
    cells = driver.execute_script(
        "return [...document.querySelectorAll('.runs tbody td')].map(c =>"
        " [getComputedStyle(c, '::before').content, c.getBoundingClientRect().right, c.innerText])"
    )
    side_by_side = driver.execute_script("return document.querySelectorAll('.compared tbody td').length")
    assert side_by_side > 0
    assert len(cells) == 4 * 11 + 1 + side_by_side
    assert all(name.strip('"') and text.strip() and right <= 380 for name, right, text in cells)


def test_a_run_is_one_step_from_its_configuration(driver: Any, address: str):
    set_viewport(driver, 1280)
    driver.get(address)
    target = driver.execute_script("return document.querySelector('.runs th a').getAttribute('href')")
    summary = driver.find_element("css selector", f"{target} summary")
    assert "chat" in summary.text
    summary.click()
    assert "backend.kv_dtype" in driver.find_element("css selector", target).text
