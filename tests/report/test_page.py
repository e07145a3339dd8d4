"""The report as a document: hostile texts stay texts, nothing is fetched, every figure says where it is from."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import re
from dataclasses import dataclass, field, replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from nodectl.model.acceptance import Acceptance
from nodectl.report.page.blocks import Nature, Origin, escaped, script_json, visible
from nodectl.report.page.content import Content, Measured
from nodectl.report.page.page import report_html
from tests.report_content import HOSTILE, acceptance, content, kind_of, names

ROOT = Path(__file__).resolve().parents[2]
SIZES = (8, 1000)


@dataclass
class Parsed(HTMLParser):
    """What a browser makes of it, as far as these tests ask."""

    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)
    text: str = ""
    _inside: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag in ("script", "style"):
            (self.scripts if tag == "script" else self.styles).append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside == "style":
            self.styles[-1] += data
        else:
            self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def data(self) -> dict[str, Any]:
        """What the page's program reads."""
        whole = json.loads(self.scripts[0])
        assert isinstance(whole, dict)
        return whole


@cache
def page(count: int) -> str:
    return report_html(content(count))


@cache
def parsed(count: int) -> Parsed:
    return read(page(count))


def read(text: str) -> Parsed:
    document = Parsed()
    document.feed(text)
    document.close()
    return document


@pytest.mark.parametrize("count", SIZES)
def test_what_hosts_tell_stays_text(count: int) -> None:
    whole = parsed(count)
    assert [one.get("type") for one in whole.of("script")] == ["application/json", None, None]
    assert not whole.of("img") and not whole.of("iframe") and not whole.of("object")
    attributes = [(tag, name) for tag, pairs in whole.tags for name in pairs]
    assert not [pair for pair in attributes if pair[1].startswith("on")]
    assert visible(HOSTILE) in whole.text
    assert "\x1b" not in page(count) and "\u202e" not in page(count)
    page(count).encode()


@pytest.mark.parametrize("count", SIZES)
def test_the_page_asks_nobody_for_anything(count: int) -> None:
    whole = parsed(count)
    links = [
        value for _, pairs in whole.tags for name, value in pairs.items() if name in ("href", "src", "action", "data")
    ]
    assert links
    assert all(value and value.startswith("#") for value in links)
    assert "url(" not in whole.styles[0] and "@import" not in whole.styles[0]
    policy = next(one["content"] for one in whole.of("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "unsafe-inline" not in policy.replace("style-src-attr 'unsafe-inline'", "") and "unsafe-eval" not in policy
    for text in (*whole.scripts[1:], *whole.styles):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


@pytest.mark.parametrize("count", SIZES)
def test_ids_are_unique_and_links_lead_somewhere(count: int) -> None:
    ids = [pairs["id"] for _, pairs in parsed(count).tags if "id" in pairs]
    assert len(ids) == len(set(ids))
    assert {str(one["href"])[1:] for one in parsed(count).of("a")} <= set(ids)


def test_every_figure_says_where_it_is_from() -> None:
    captions = re.findall(r"<figcaption.*?</figcaption>", page(8), re.DOTALL)
    assert len(captions) >= 6
    assert all('class="origin' in caption for caption in captions)
    shown = " ".join(captions)
    assert "RECORDED DATA" in shown and "LAB DATA" in shown and "trial.json" in shown


def test_every_chart_has_words_and_a_table() -> None:
    charts = re.findall(r'<figure><figcaption id="chart.*?</figure>', page(8), re.DOTALL)
    assert {parsed(8).data[name]["kind"] for name in re.findall(r'id="(chart-\d+)"', page(8))} == {
        *("heat", "lines", "intervals", "timeline")
    }
    for chart in charts:
        assert re.search(r'role="img" aria-label="[^"]{20,}"', chart)
        assert "<table" in chart and "<td" in chart


def test_no_status_is_told_by_its_colour_alone() -> None:
    marks = re.findall(r'<span class="mark (\w+)">(.*?)</span> (.*?)</span>', page(8))
    assert {mark[0] for mark in marks} >= {"ok", "failed", "warning", "unknown"}
    assert all(word.strip() for *_, word in marks)


def test_the_blamed_are_marked_in_the_heat_map() -> None:
    heat = next(one for one in parsed(8).data.values() if isinstance(one, dict) and one.get("kind") == "heat")
    assert heat["blamed"] and all(2 in pair for pair in heat["blamed"])
    assert len(heat["cells"]) == 8 * 7 and len(heat["blamed"]) == 14


def test_who_is_blamed_is_said_only_where_it_is_known() -> None:
    whole = content(8)
    for findings, words in (((), "nobody is blamed"), (None, "who is to blame is not kept")):
        text = read(report_html(replace(whole, measured=(replace(whole.measured[0], findings=findings),)))).text
        assert words in text


def test_what_an_acceptance_measured_is_told_once_though_the_history_has_it_too() -> None:
    one = acceptance(names(8))
    kept = Measured(tuple(taken.measurement for taken in one.taken), None, Origin(Nature.LAB, "history"))
    page = report_html(Content("Fleet", "now", "1", kind_of, acceptances=(one,), measured=(kept,)))
    assert page.count("Figures of the fleet") == 1


def test_a_thousand_hosts_are_folded_and_each_is_found() -> None:
    whole = parsed(1000)
    assert len(whole.of("tr")) < 1200
    assert len(page(1000)) < 3_000_000
    strips = page(1000).count('<svg class="cells"')
    assert strips > 8
    assert page(1000).count("<path") < 5 * strips
    search = next(one for name, one in whole.data.items() if name.startswith("search"))
    assert search["hosts"][0][0] == "gpu0003"
    assert len(search["hosts"]) == 1000 and len(search["found"]) == 1000
    found = dict(zip((host[0] for host in search["hosts"]), search["found"], strict=True))
    assert search["texts"][found["gpu0003"][0]].startswith("failed: gemm, gemm_slow")
    assert found["gpu0001"] == []


def test_rows_beyond_the_first_come_when_asked_for() -> None:
    rest = [rows for name, rows in parsed(1000).data.items() if name.startswith("table")]
    buttons = [one["data-more"] for one in parsed(1000).of("button") if "data-more" in one]
    assert len(rest) == len(buttons) > 0
    told = {str(row[0]) for rows in rest for row in rows}
    assert any(name in cell for cell in told for name in ("gpu0999", "gpu0998", "gpu1000"))


@pytest.mark.parametrize(
    ("nature", "words"), [("measured", "measured on these hosts"), ("lab", "LAB DATA"), ("new", "not describe")]
)
def test_an_acceptance_says_what_its_figures_are_of(nature: str, words: str) -> None:
    one: Acceptance = acceptance(names(3), nature)
    text = read(report_html(Content("Fleet", "now", "1", acceptances=(replace(one, ended=None),)))).text
    assert words in text and "NOT complete" in text


def test_json_in_a_script_element_ends_nothing() -> None:
    assert script_json("\ud800") == r'"\\ud800"' and visible("\ud800\x9b") == r"\ud800\x9b"
    text = script_json({HOSTILE: [HOSTILE, float("inf"), float("nan"), 1.5, None]})
    assert "<" not in text and ">" not in text and "&" not in text
    assert json.loads(text) == {visible(HOSTILE): [visible(HOSTILE), None, None, 1.5, None]}
    assert escaped('<a title="x">') == "&lt;a title=&quot;x&quot;&gt;"


def test_the_library_is_what_its_script_and_the_docs_say() -> None:
    spec = importlib.util.spec_from_file_location("chart_library", ROOT / "scripts" / "chart_library.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    library = script.LIBRARY.read_bytes()
    assert len(library) < 1_000_000
    assert library.decode().startswith(script.BANNER.format(**script.VERSIONS))
    assert b"</script" not in library and b"<!--" not in library
    licences = script.LICENCES.read_text(encoding="utf-8")
    assert "Apache License" in licences and "Baidu Inc." in licences and "Permission to use, copy, modify" in licences
    docs = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    assert f"ECharts {script.VERSIONS['echarts']}" in docs
    assert hashlib.sha256(library).hexdigest() in docs
