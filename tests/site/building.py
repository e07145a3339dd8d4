"""The site as `make site` builds it, in this process."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def made_of_this(site: Path) -> bool:
    """Whether the site is younger than all that it is made of."""
    page = site / "index.html"
    folders = (ROOT / name for name in ("docs", "nodectl", "playbooks", "plugins", "roles", "scripts", "mkdocs.yml"))
    sources = (path for folder in folders for path in (folder, *folder.rglob("*")) if "__pycache__" not in path.parts)
    return page.is_file() and all(path.stat().st_mtime < page.stat().st_mtime for path in sources if path.is_file())


def build(docs: Path, site: Path) -> list[str]:
    """Build these pages strictly; what was wrong with them, a line each: with any, `make site` fails."""
    os.environ["NO_MKDOCS_2_WARNING"] = "1"
    pytest.importorskip("material", reason="no mkdocs-material in this environment: make setup installs it")
    from mkdocs.commands.build import build as mkdocs_build
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort

    heard = _Warnings()
    log = logging.getLogger("mkdocs")
    log.addHandler(heard)
    try:
        mkdocs_build(load_config(str(ROOT / "mkdocs.yml"), docs_dir=str(docs), site_dir=str(site), strict=True))
    except Abort as error:
        assert heard.lines, error
        assert "strict" in str(error)
    else:
        assert not heard.lines
    finally:
        log.removeHandler(heard)
    return heard.lines
