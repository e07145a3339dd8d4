"""One site for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.site.building import DOCS, ROOT, build, made_of_this


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site as it is built of docs/: what `make test` has just built serves."""
    if made_of_this(ROOT / ".state/site"):
        return ROOT / ".state/site"
    folder = tmp_path_factory.mktemp("site")
    assert build(DOCS, folder) == []
    return folder
