"""What others publish: each table names its source and its time, and is what its document says."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.checks.gpu.dcgm import _BROKEN
from nodectl.checks.gpu.nvidia_codes import dcgm_errors
from nodectl.profiles.support import data_files, published_files
from scripts.data.dcgm import rows
from scripts.data.nccl import TABLE, mended

# nodectl's own: what it decides, invents, measured and recorded, and what is held against figures of articles
OWN = {"articles", "inventories", "prometheus", "recordings", "base.yml"}

DCGM = """
typedef enum dcgmError_enum
{
    DCGM_FR_OK                         = 0,  //!< 0 No error
    DCGM_FR_BROKEN_P2P_PCIE_WRITER_DEVICE
        = 114, //!< 114 P2P copy test detected an error writing from this GPU over PCIE
    DCGM_FR_FALLEN_OFF_BUS                 = 120, //!< 120 GPU has fallen off the bus
    DCGM_FR_ERROR_SENTINEL                 = 133, //!< 133 MUST BE THE LAST ERROR CODE
} dcgmError_t;
    DCGM_FR_EC_NONE              = 0,  //!< 0 NONE
"""
GUIDE = """
System configuration
====================

NCCL_SOCKET_RETRY_CNT
-----------------------------
(since 2.24)

.. _NCCL_OF_A_LATER_ONE:

NCCL_OF_A_LATER_ONE
-------------------
(since 2.99.1)

Debugging
=========

NCCL_ALGO
---------
(since 2.5)
"""


def test_each_table_says_its_source_and_its_time() -> None:
    heads = dict(published_files())
    silent = [path for path in data_files() if path not in heads and not OWN.intersection(path.parts[-3:])]
    assert not silent
    for head in heads.values():
        assert head["source"] and head["read_on"] < head["valid_until"]


def test_a_table_without_a_head_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.yml").write_text("rows: []\n")
    monkeypatch.setattr("nodectl.profiles.support.data_dir", lambda: tmp_path)
    assert tmp_path / "a.yml" in data_files() and tmp_path / "a.yml" not in dict(published_files())


def test_dcgms_errors_are_those_of_its_header() -> None:
    made = {code: words for code, _, words in rows(DCGM)}
    assert list(made) == [0, 114, 120]
    assert made.items() <= dcgm_errors().items()
    assert set(dcgm_errors()) >= _BROKEN


def test_nccls_variables_are_those_of_its_guide() -> None:
    table = TABLE.read_text(encoding="utf-8")
    new = mended(table, GUIDE)
    assert set(new.splitlines()) - set(table.splitlines()) == {"NCCL_OF_A_LATER_ONE\t2.99.1\t-\t-\ttext\tguide"}
    assert mended(table, GUIDE.partition("\n.. _")[0] + "\nDebugging\n=\n") == table
    assert "NCCL_ALGO\t2.5.6\t-\t-\t" in mended(table, GUIDE.replace("Debugging\n=", "Else\n=") + "\nDebugging\n=\n")
