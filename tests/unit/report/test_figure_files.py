"""Figures beside the page: an SVG and a PNG that stand alone."""

import struct
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest

from harness.records.reader import find_runs
from harness.report import write_report
from harness.report.canvas import drawing
from harness.report.figure import Figure, file_name
from harness.report.palette import series_style
from tests.support.synthetic_runs import Schedule, write_run

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert(1)</script>\"'&<image href=x onerror=alert(1)/> $\\frac{1}{$ 字 \x07\n\ud800 end"


def a_figure(title: str = "Time to first token", **more: object) -> Figure:
    figure, (axes,) = drawing()
    axes.plot([1, 2], [3, 4], **series_style(1))
    axes.set(xlabel="seconds", ylabel=title[-20:])
    return Figure("name", title, "How to read it.", figure, pd.DataFrame(), **more)  # type: ignore[arg-type]


def words(svg: str) -> str:
    return " ".join("".join(text.itertext()) for text in ElementTree.fromstring(svg).iter(f"{SVG}text"))


def size(png: bytes) -> tuple[int, int]:
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_they_have_a_title_a_legend_colours_and_a_white_ground():
    one = a_figure(series=[1])
    inside = one.svg
    assert "Time to first token" in inside and "openvino" not in inside  # the page writes the legend itself
    svg, png = one.files(["vllm", "openvino · chat"])
    told = words(svg)
    assert "Time to first token" in told and "openvino · chat" in told and "vllm" not in told
    assert 'fill="white"' in svg and "#d55e00" in svg
    assert "var(" not in svg and "currentColor" not in svg
    width, height = size(png)
    assert width == 1000 and height > 580  # two pixels for each of the page's; a title and a legend taller


def test_a_legend_of_its_own_comes_before_the_pages():
    svg, _ = a_figure(legend={0: "by rate"}, series=[0]).files(["a run"])
    assert "by rate" in words(svg) and "a run" not in words(svg)


@pytest.mark.parametrize("count", [2, 60])
def test_a_longer_legend_makes_it_taller_and_covers_nothing(count: int):
    _, png = a_figure(series=list(range(count))).files(
        [f"setting {place} {'x' * 40}" for place in range(count)]
    )
    assert size(png)[1] > 580 + 30 * count


def test_words_of_models_and_configurations_are_escaped_and_never_read_as_formulas():
    svg, png = a_figure(HOSTILE, series=[0]).files([HOSTILE])
    root = ElementTree.fromstring(svg)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} & {"script", "image"} == set()
    assert not [name for element in root.iter() for name in element.attrib if name.startswith("on")]
    assert "<script>alert(1)</script>" in words(svg) and "$\\frac{1}{$" in words(svg)
    assert size(png)[0] == 1000


def test_they_lie_beside_the_page_and_those_of_an_earlier_report_go(tmp_path: Path):
    for place in range(4):
        load = {"name": "poisson", "rate": float(place + 1)}
        write_run(tmp_path, f"r{place}", Schedule(jitter=0.2), workload="a/../b <i>", config={"load": load})
    folder = tmp_path / "report"
    write_report(find_runs(["r*"], tmp_path), folder)
    svgs = {path.stem for path in (folder / "figures").glob("*.svg")}
    pngs = {path.stem for path in (folder / "figures").glob("*.png")}
    assert {name for name in svgs if not name.startswith("timeline")} == pngs  # one a run would take too long
    assert svgs == {path.stem for path in (folder / "data").glob("*.csv")}
    assert {"ttft", "gaps", "load", "memory", "timeline-r0"} < svgs
    assert any(name.startswith("latency-throughput-a-..-b-i") for name in svgs)
    for path in (folder / "figures").glob("*.svg"):
        identifiers = [
            one.get("id") for one in ElementTree.fromstring(path.read_bytes()).iter() if one.get("id")
        ]
        assert len(identifiers) == len(set(identifiers)), path
    own = [folder / "data" / "mine.csv", folder / "figures" / "mine.png"]
    for path in own:
        path.write_text("kept")
    write_report(find_runs(["r0"], tmp_path), folder)
    assert not list((folder / "figures").glob("latency-throughput*"))
    assert not list((folder / "data").glob("latency-throughput*"))
    assert [path.read_text() for path in own] == ["kept", "kept"]


def test_every_file_of_a_report_is_linked_from_its_page(tmp_path: Path):
    """By the links a later report knows which files are the earlier one's."""
    write_run(tmp_path, "r1", Schedule(jitter=0.2))
    folder = tmp_path / "report"
    page = write_report(find_runs(["r1"], tmp_path), folder).read_text()
    for path in (*(folder / "figures").iterdir(), *(folder / "data").iterdir()):
        assert f'href="{path.parent.name}/{path.name}"' in page


def test_words_that_look_like_a_colour_or_an_identifier_are_shown_as_they_are():
    figure, (axes,) = drawing()
    axes.set(xlabel='engine #0072b2 id="x"')
    one = Figure("name", "t", "", figure, pd.DataFrame())
    assert 'engine #0072b2 id="x"' in words(
        f'<svg xmlns="{SVG[1:-1]}" xmlns:xlink="http://www.w3.org/1999/xlink">{one.svg[one.svg.index(">") + 1 :]}'
    )


def test_names_of_files_are_safe_and_different():
    assert file_name("latency-throughput", "chat") == "latency-throughput-chat"
    names = {file_name("x", words) for words in ("a/b", "a b", "a?b", "../a", "ä" * 300, "ä" * 301)}
    assert len(names) == 6
    assert all(len(name) < 80 and "/" not in name for name in names)
