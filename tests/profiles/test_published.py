"""What others publish: each table names its source and its time, and is what its document says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

from nodectl.checks.gpu.dcgm import _BROKEN
from nodectl.checks.gpu.nvidia_codes import SxidCode, XidCode, dcgm_errors, sxid_codes, xid_codes
from nodectl.common.resources import payload_dir
from nodectl.profiles.gpus import _models
from nodectl.profiles.support import data_files, published_files
from scripts.data import DATA
from scripts.data.dcgm import rows
from scripts.data.nccl import TABLE, mended
from scripts.data.sxid import sxids
from scripts.data.xid import nvlink, xids

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

# the fields of two rows of each sheet
XIDS = [
    ("13", r"ROBUST_CHANNEL_GR_EXCEPTION /\nROBUST_CHANNEL_GR_ERROR_SW_NOTIFY", "", "RESTART_APP", "WORKFLOW_XID_13"),
    ("154", "GPU_RECOVERY_ACTION_CHANGED", "", "XID_154", "N/A Informational only regarding another Xid"),
]
NVLINK = [
    ("145", "RLW_RXPIPE", "00011000010", "00000110", "0", "0x00000001", "IGNORE", "CONTACT_SUPPORT", "Non-fatal*"),
    (
        *("149", "NETIR_LINK_EVT/NETIR_LINK_DOWN", "00111000110", "00010001", "1", "0x00000000"),
        *("RESET_GPU", "REPORT_ISSUE (if seen >1 per day)", "Link Fatal"),
    ),
]
NVERROR = """
#define ROBUST_CHANNEL_GR_EXCEPTION                     (13)
#define PCIE_CORRECTABLE_ERROR_FAULT                    (176)
#define ROBUST_CHANNEL_LAST_ERROR                       (176)
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


def catalogue() -> str:
    """Return the two sheets as leptonai/gpud writes them."""
    names = ("Mnemonic", "Description", "ImmediateResolution", "InvestigatoryResolution")
    sheets = {"catalogEntry": [[f"Code: {code}", *map('{}: "{}"'.format, names, row)] for code, *row in XIDS]}
    sheets["nvlinkRule"] = [
        [
            f'Xid: {xid}, Unit: "{unit}", IntrinfoPatternV1: "------{int(detail):06b}---------{old}"',
            f'IntrinfoPatternV2: "------{int(detail):06b}------------{new}", ErrorStatus: {status}',
            f'Resolution: "{now}", Investigatory: "{then}", Severity: "{severity}"',
        ]
        for xid, unit, old, new, detail, status, now, then, severity in NVLINK
    ]
    lines = {kind: "".join(f"\t{{{', '.join(row)}}},\n" for row in rows) for kind, rows in sheets.items()}
    return "".join(f"var x = []{kind}{{\n{rows}}}\n" for kind, rows in lines.items())


def test_xids_are_those_of_nvidias_catalogue() -> None:
    assert [XidCode(*row) for row in xids(catalogue(), NVERROR)] == [xid_codes()[code] for code in (13, 154, 176)]
    lines = (DATA / "nvidia" / "nvlink5.yml").read_text(encoding="utf-8").splitlines()
    made = [f"  - {row}" for row in nvlink(catalogue())]
    assert len(made) == 2 and set(made) <= set(lines)


def test_sxids_are_those_of_the_fabric_managers_guide() -> None:
    table = ("AlwaysFatal", "PotentialFatal", "OtherImpact")
    entries = {
        22012: ("Minion Link NA interrupt", "false", "true", '"No impact"'),
        11012: ("Single bit ECC errors", "false", "false", '"No Impact."'),
        10001: ("Host_priv_error", "false", "true", '""'),
        10003: ("Host_unhandled_interrupt", *(f"defaultAlwaysFatalErr.{name}" for name in table)),
    }
    go = "".join(
        f'\t{code}: {{ // D\n\t\tName:  "{name}",\n'
        + "".join(f"\t\t{field}:  {value},\n" for field, value in zip(table, values, strict=True))
        + "\t},\n"
        for code, (name, *values) in entries.items()
    )
    made = [SxidCode(*yaml.safe_load(row)) for row in sxids(go)]
    assert made == [sxid_codes()[code] for code in sorted(entries)]
    assert [row.severity for row in made] == ["notable", "always fatal", "nonfatal", "fatal"]


def test_what_nodes_hold_a_training_against_is_the_catalogues() -> None:
    # the program comes to nodes without nodectl's data, and needs PyTorch to be imported
    program = payload_dir().with_name("workloads") / "usage.py"
    table = program.read_text(encoding="utf-8").partition("_PEAKS = ")[2].partition("\n)\n")[0]
    peaks = ast.literal_eval(f"{table}\n)")
    published = {name: model.tflops for name, model in _models().items() if model.tflops}
    held = {name: next((half for kind, half, *_ in peaks if re.search(kind, name)), None) for name in published}
    assert {"NVIDIA H200 NVL", "NVIDIA GB200", "NVIDIA GeForce RTX 3090 Ti"} <= {name for name in held if held[name]}
    for name, half in held.items():
        assert half is None or half == pytest.approx(published[name], rel=0.01), name
