"""Sorting and filtering a report in a real browser, by mouse and by keyboard."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.records.reader import find_runs
from harness.report import write_report
from tests.support.browser import chromium, set_viewport
from tests.support.synthetic_runs import Schedule, write_failed_run, write_run

pytestmark = pytest.mark.browser

# Perplexities that sort otherwise as text than as numbers; two are alike, one is unknown, and one run failed.
PERPLEXITY = {"r1": 9.5, "r2": 110.25, "r3": None, "r4": 20.0, "r5": 20.0}
ENGINES = {"r1": "openvino", "r2": "vllm", "r3": "vllm", "r4": "openvino", "r5": "vllm"}
WORKLOADS = {"r1": "chat", "r2": "chat", "r3": "rag", "r4": "rag", "r5": "rag"}
CONFIG = {"workload": {"name": "chat"}, "model": {"name": "model"}}
AS_WRITTEN = ["1", "2", "3", "4", "5", "6"]

SHOWN = (
    "const found = [...document.querySelectorAll(arguments[0])];"
    "return found.filter(e => e.checkVisibility()).map(e => e.dataset.runs)"
)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("chromium") / "profile") as browser:
        yield browser


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("results")
    for name, perplexity in PERPLEXITY.items():
        errors = {3: "timeout"} if name in ("r2", "r4") else {}
        write_run(
            folder,
            name,
            Schedule(errors=errors),
            backend=ENGINES[name],
            workload=WORKLOADS[name],
            perplexity=perplexity,
            fingerprint={"notes": [f"A note of {name}."]},
        )
    write_failed_run(folder, "r6", "It ran out of memory.", backend="openvino")
    return write_report(find_runs(["r*"], folder), folder / "report").as_uri()


@pytest.fixture
def page(driver: Any, address: str) -> Any:
    set_viewport(driver, 1280)
    driver.get(address)
    return driver


def order(page: Any) -> list[str]:
    """Numbers of the runs in the table of runs, hidden or not."""
    return page.execute_script(
        "return [...document.querySelectorAll('#runs tbody tr')].map(r => r.dataset.runs)"
    )


def heading(page: Any, words: str) -> Any:
    return page.find_element(
        "xpath", f"//section[@id='runs']//thead//button[starts-with(normalize-space(), '{words}')]"
    )


def box(page: Any, value: str) -> Any:
    return page.find_element("xpath", f"//*[@id='filters']//label[span='{value}']/input")


def shown(page: Any, selector: str) -> list[str]:
    """Which runs the visible elements of this kind are about."""
    return page.execute_script(SHOWN, selector)


def status(page: Any) -> str:
    return page.find_element("css selector", "#filters [role=status]").text


def pressed_by_tab(page: Any, most: int = 200) -> Iterator[Any]:
    """Each element that Tab comes to from the start of the page."""
    from selenium.webdriver.common.keys import Keys

    page.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
    for _ in range(most):
        page.switch_to.active_element.send_keys(Keys.TAB)
        yield page.switch_to.active_element


def test_numbers_sort_by_value_unknown_ones_last_and_equal_ones_as_they_came(page: Any):
    press = heading(page, "Perplexity")
    cell = press.find_element("xpath", "..")
    seen = []
    for _ in range(4):
        seen.append((cell.get_attribute("aria-sort"), order(page)))
        press.click()
    assert seen == [
        (None, AS_WRITTEN),
        ("ascending", ["1", "4", "5", "2", "3", "6"]),
        ("descending", ["2", "4", "5", "1", "3", "6"]),
        (None, AS_WRITTEN),
    ]


def test_one_column_at_a_time_says_that_it_is_sorted(page: Any):
    heading(page, "Perplexity").click()
    heading(page, "Run").click()
    sorted_by = page.execute_script(
        "return [...document.querySelectorAll('#runs [aria-sort]')].map(h => [h.innerText.trim(), h.ariaSort])"
    )
    assert sorted_by == [["Run", "ascending"]]
    names = page.execute_script(
        "return [...document.querySelectorAll('#runs tbody th')].map(h => h.dataset.value)"
    )
    assert names == sorted(names)


def test_a_reason_travels_with_the_row_it_is_about(page: Any):
    rows_of = (
        "const rows = [...document.querySelectorAll('#comparison-1 tbody tr')];"
        "return rows.map(row => [row.dataset.runs, row.cells.length])"
    )
    before = page.execute_script(rows_of)
    assert sum(cells == 1 for _, cells in before) == 1  # of the run that failed
    button = page.find_element("css selector", "#comparison-1 thead button")
    places = set()
    for _ in range(2):
        button.click()
        rows = page.execute_script(rows_of)
        assert sorted(rows) == sorted(before)
        place = next(place for place, (_, cells) in enumerate(rows) if cells == 1)
        assert rows[place - 1][0] == rows[place][0]
        places.add(place)
    assert len(places) == 2  # first and last in turn


@pytest.mark.parametrize(
    ("ticks", "runs"),
    [
        (["vllm"], ["2", "3", "5"]),
        (["vllm", "openvino"], AS_WRITTEN),
        (["vllm", "chat"], ["2"]),
        (["rag", "complete"], ["3", "4", "5"]),
        (["failed"], ["6"]),
        (["vllm", "failed"], []),
    ],
)
def test_the_filter_keeps_what_has_a_ticked_value_in_every_group(
    page: Any, ticks: list[str], runs: list[str]
):
    for value in ticks:
        box(page, value).click()
    measured = [run for run in runs if run != "6"]
    assert shown(page, "#runs tbody tr") == runs
    assert shown(page, "#runs .notes p") == measured
    assert shown(page, "#timelines figure") == measured
    assert shown(page, "#errors tbody tr") == [run for run in runs if run in ("2", "4")]
    assert shown(page, "details[id^=details-]") == runs
    assert status(page) == f"{len(runs)} of 6 runs shown."
    for button in page.find_elements("css selector", "#filters button"):
        if button.is_displayed():
            button.click()
    assert shown(page, "#runs tbody tr") == AS_WRITTEN
    assert status(page) == "6 of 6 runs shown."
    assert page.switch_to.active_element.get_attribute("type") == "checkbox"  # the focus did not get lost


def test_the_lines_of_a_figure_go_with_their_runs(page: Any):
    drawn = (
        "return [...document.querySelectorAll('#ttft svg [data-series]')].filter(g => getComputedStyle(g).display"
        " !== 'none').length"
    )
    assert page.execute_script(drawn) == 5
    box(page, "vllm").click()
    assert page.execute_script(drawn) == 3
    assert (
        len(
            page.execute_script(
                "return [...document.querySelectorAll('#ttft .legend li')].filter(e => e.checkVisibility())"
            )
        )
        == 2
    )  # the repeats share one
    assert page.find_element("css selector", "#filters .of-all").is_displayed()
    box(page, "failed").click()
    assert not page.find_element("id", "ttft").is_displayed()


def test_a_section_goes_when_nothing_in_it_is_left(page: Any):
    showing = (
        "const sections = [...document.querySelectorAll('main > section[id]')];"
        "return sections.filter(e => e.checkVisibility()).map(e => e.id)"
    )
    before = page.execute_script(showing)
    assert {"runs", "waits", "timelines", "errors", "over-time", "validity", "glossary"} <= set(before)
    box(page, "failed").click()
    left = set(page.execute_script(showing))
    assert {"runs", "details", "validity", "glossary"} <= left
    assert not {"waits", "timelines", "errors", "over-time"} & left
    assert not page.find_elements("css selector", "main > section:not([hidden]) > h2:only-child")
    box(page, "failed").click()
    assert page.execute_script(showing) == before


def test_a_line_over_the_load_goes_with_the_runs_that_it_joins(driver: Any, tmp_path: Path):
    for engine in ("openvino", "vllm"):
        for concurrency in (1, 2, 4):
            load = {"name": "closed", "concurrency": concurrency}
            write_run(
                tmp_path,
                f"r-{engine}-{concurrency}",
                backend=engine,
                config={**CONFIG, "backend": {"name": engine}, "load": load},
            )
    set_viewport(driver, 1280)
    driver.get(write_report(find_runs(["r*"], tmp_path), tmp_path / "report").as_uri())
    drawn = (
        "const lines = [...document.querySelectorAll('#against-load-chat-concurrency [data-series]')];"
        "return [...new Set(lines.filter(e => getComputedStyle(e).display !== 'none').map(e => e.dataset.series))]"
    )
    assert sorted(driver.execute_script(drawn)) == ["0", "1"]
    box(driver, "vllm").click()
    assert driver.execute_script(drawn) == ["1"]


def test_sorted_rows_stay_hidden_and_hidden_ones_are_sorted(page: Any):
    box(page, "rag").click()
    heading(page, "Perplexity").click()
    heading(page, "Perplexity").click()
    assert shown(page, "#runs tbody tr") == ["4", "5", "3"]
    box(page, "rag").click()
    assert shown(page, "#runs tbody tr") == ["2", "4", "5", "1", "3", "6"]


def test_everything_can_be_done_from_the_keyboard(page: Any):
    from selenium.webdriver.common.keys import Keys

    reached = list(pressed_by_tab(page, 1))
    assert reached[0].get_attribute("class") == "skip"
    assert reached[0].rect["y"] >= 0  # comes into sight
    for element in pressed_by_tab(page):
        if element.get_attribute("data-facet") and element.find_element("xpath", "..").text.startswith(
            "vllm"
        ):
            element.send_keys(Keys.SPACE)
            break
    assert shown(page, "#runs tbody tr") == ["2", "3", "5"]
    perplexity = heading(page, "Perplexity")
    for element in pressed_by_tab(page):
        if element == perplexity:
            element.send_keys(Keys.ENTER)
            element.send_keys(Keys.SPACE)
            break
    assert shown(page, "#runs tbody tr") == ["2", "5", "3"]
    for element in pressed_by_tab(page):
        if element.text == "Show all":
            element.send_keys(Keys.ENTER)
            break
    assert len(shown(page, "#runs tbody tr")) == 6


def test_tab_comes_to_every_control_in_order_and_leaves_the_page(page: Any):
    controls = page.execute_script(
        "return [...document.querySelectorAll('a[href], button, input, summary, [tabindex]')]"
        ".filter(e => e.checkVisibility())"
    )
    reached, rings = [], []
    for element in pressed_by_tab(page, len(controls)):
        reached.append(element)
        rings.append(
            page.execute_script(
                "const ring = e => getComputedStyle(e).outlineStyle !== 'none' && getComputedStyle(e).outlineWidth;"
                "return ring(arguments[0]) || ring(arguments[0].closest('label') ?? arguments[0])",
                element,
            )
        )
    assert reached == controls
    assert set(rings) == {"2px"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_the_headings_stand_above_the_cards_and_sort_them(page: Any, scheme: str):
    set_viewport(page, 380, scheme=scheme)
    press = heading(page, "Perplexity")
    assert press.rect["height"] >= 24
    press.click()
    assert order(page) == ["1", "4", "5", "2", "3", "6"]
    assert page.execute_script("return document.documentElement.scrollWidth") <= 380
    names = page.find_elements("css selector", "#runs thead button")
    assert all(name.is_displayed() and name.rect["x"] + name.rect["width"] <= 380 for name in names)


def test_what_is_printed_is_what_was_filtered_and_sorted_without_the_controls(page: Any):
    box(page, "rag").click()
    heading(page, "Perplexity").click()
    heading(page, "Perplexity").click()
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert shown(page, "#runs tbody tr") == ["4", "5", "3"]
        assert status(page) == "3 of 6 runs shown."
        assert page.find_element("id", "filters").text.split("\n")[0] == "Workload"
        assert "vllm" not in page.find_element("id", "filters").text
        for hidden in ("#filters input", "#filters button", ".skip"):
            assert not any(e.is_displayed() for e in page.find_elements("css selector", hidden))
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_without_javascript_the_page_is_whole(page: Any, address: str):
    page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page.get(address)
        rows = page.find_elements("css selector", "#runs tbody tr")
        assert [row.is_displayed() for row in rows] == [True] * 6
        assert not page.find_elements("css selector", "thead button")
        assert not page.find_element("id", "filters").is_displayed()
    finally:
        page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_where_all_runs_are_of_one_kind_there_is_no_filter(driver: Any, tmp_path: Path):
    write_run(tmp_path, "r1")
    write_run(tmp_path, "r2")
    set_viewport(driver, 1280)
    driver.get(write_report(find_runs(["r*"], tmp_path), tmp_path / "report").as_uri())
    assert driver.get_log("browser") == []
    assert driver.find_elements("id", "filters") == []
    assert driver.find_elements("css selector", "#runs thead button")
