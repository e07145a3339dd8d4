"""The report as a document: hostile texts stay texts, nothing is fetched, each section has its content."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache
from html.parser import HTMLParser

import pytest

from nodectl.report.page.blocks import visible
from nodectl.report.page.content import Content, Nature, Origin
from nodectl.report.page.page import report_html
from tests.report_content import HOSTILE, acceptance, content, names

SIZES = (1, 8, 1000)


@dataclass
class Parsed(HTMLParser):
    """What a browser makes of it, as far as these tests ask."""

    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    style: str = ""
    text: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.lasttag == "style" and not self.style:
            self.style = data
        else:
            self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@cache
def page(count: int) -> str:
    return report_html(content(count))


def read(text: str) -> Parsed:
    document = Parsed()
    document.feed(text)
    document.close()
    return document


def section(name: str, text: str | None = None) -> str:
    found = re.search(rf'<section id="{name}".*?</section>', text or page(8), re.DOTALL)
    assert found is not None
    return " ".join(read(found[0]).text.split())


@pytest.mark.parametrize("count", SIZES)
def test_texts_of_hosts_stay_text(count: int) -> None:
    whole = read(page(count))
    assert not {"script", "img", "iframe", "object", "link"} & {tag for tag, _ in whole.tags}
    assert not [name for _, pairs in whole.tags for name in pairs if name.startswith("on")]
    assert visible(HOSTILE) in whole.text
    assert "\x1b" not in page(count) and "\u202e" not in page(count)
    page(count).encode()


def test_names_of_hosts_and_files_are_escaped_everywhere() -> None:
    whole = content(3)
    origin = Origin(Nature.LAB, HOSTILE)
    looks = (replace(whole.found[0], origin=origin, findings=tuple(
        replace(finding, host=HOSTILE, check=HOSTILE, status=finding.status) for finding in whole.found[0].findings
    )),)  # fmt: skip
    text = report_html(replace(whole, title=HOSTILE, acceptances=(acceptance([HOSTILE]),), found=looks))
    assert {tag for tag, _ in read(text).tags} == {tag for tag, _ in read(page(3)).tags}
    assert f"{visible(HOSTILE)} on " in section("findings", text)
    assert visible("\ud800\x9b") == r"\ud800\x9b"


@pytest.mark.parametrize("count", SIZES)
def test_the_page_fetches_nothing(count: int) -> None:
    whole = read(page(count))
    links = [value for _, pairs in whole.tags for name, value in pairs.items() if name in ("href", "src", "action")]
    assert links and all(value and value.startswith("#") for value in links)
    assert "url(" not in whole.style and "@import" not in whole.style and "@media print" in whole.style
    policy = next(one["content"] for one in whole.of("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none';") and "script-src" not in policy


@pytest.mark.parametrize("count", SIZES)
def test_ids_are_unique_and_tables_have_headers(count: int) -> None:
    whole = read(page(count))
    ids = [pairs["id"] for _, pairs in whole.tags if "id" in pairs]
    assert len(ids) == len(set(ids))
    assert {str(one["href"])[1:] for one in whole.of("a")} <= set(ids)
    assert {one.get("scope") for one in whole.of("th")} == {"row", "col"}
    assert len(whole.of("caption")) == len(whole.of("table"))


def test_colour_is_never_the_only_carrier() -> None:
    marks = re.findall(r'<span class="mark (\w+)"><span aria-hidden="true">(.)</span> (.*?)</span>', page(8))
    assert {status for status, *_ in marks} >= {"ok", "failed", "warning", "unknown", "skipped"}
    assert all(word.strip() for *_, word in marks)
    cells = re.findall(r'<td class="heat(?: blamed)?" style="--shade: \d+%">(.*?)</td>', page(8))
    assert len(cells) == 8 * 7 and all("Gbit/s" in cell for cell in cells)


def test_hosts_have_a_verdict_and_a_status_for_each_step() -> None:
    text = section("hosts")
    assert "gpu0003 ✕ rejected ✓ ok ✕ failed gemm" in text
    assert "Acceptance 20261123T220000Z-ab12, level standard" in text and "for their vendor" in text
    looked = section("hosts", report_html(replace(content(8), acceptances=())))
    assert "no acceptance" in looked and "gpu0005 ✕ failed" in looked and "gpu0001 ▲ warning" in looked


def test_findings_say_what_to_do_for_hosts_that_agree() -> None:
    text = section("findings")
    assert "ecc on gpu0005: 3 uncorrected" in text and "reset GPU: nodectl -l gpu0005 exec" in text
    assert "uptime on gpu[0001-0008]: up for 0 days" in text and "(and 7 other values)" in text
    assert "gemm_slow on gpu0003: 171 TFLOPS" in text


def test_wiring_is_the_text_of_topology_and_tables() -> None:
    text = section("wiring")
    assert "gpu[0001-0008]: 4 x NVIDIA A100-SXM4-80GB, 2 RDMA NICs" in text and "NUMA 1" in text
    assert "fabric (LLDP): 4 switches, 8 hosts" in text


def test_measurements_are_a_row_for_each_size_with_a_bar_and_the_floor() -> None:
    text = section("measured")
    assert "size_bytes 1073741824, all_reduce gpu[0001-0008] 230 GB/s 184 GB/s" in text
    shares = [float(share) for share in re.findall(r'class="bar" style="width: ([\d.]+)%"', page(8))]
    assert max(shares) == 100 and min(shares) >= 0


def test_the_heat_map_marks_the_blamed() -> None:
    assert section("measured").count("✕ blamed") == 14
    assert "Blamed, with ✕ and a frame: gpu0003" in section("measured")
    shades = [int(shade) for shade in re.findall(r"--shade: (\d+)%", page(8))]
    assert shades.count(100) == 14 and max(sorted(shades)[:-14]) < 20


def test_trials_and_jobs() -> None:
    assert "8 verdicts against base" in section("tuning") and "✕ worse -6.0 % -9.0 % to -3.0 %" in section("tuning")
    jobs = section("jobs")
    assert "job-2 ✕ failed ada" in jobs and "700 s 2 gpu[0001-0008]" in jobs
    assert "Class: out_of_memory." in jobs and "What to do: a smaller batch" in jobs and "Traceback" in jobs


def test_a_thousand_hosts_are_all_in_the_page_and_most_of_them_folded() -> None:
    assert len(page(1000)) < 3_000_000
    assert "976 more rows: Hosts and steps" in page(1000)
    assert all(f'<th scope="row">{name}</th>' in page(1000) for name in names(1000))


def test_a_page_with_nothing_says_what_would_fill_it() -> None:
    text = report_html(Content("Fleet", "now", "1"))
    assert text.count('class="missing"') == text.count("<section") == 6 and "<code>nodectl accept</code>" in text
