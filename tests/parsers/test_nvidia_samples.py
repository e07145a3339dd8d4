"""Every output of NVIDIA's tools that was collected from real machines is read, or refused for a named reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.errors import ParseError
from nodectl.parsers.catalogue import as_document, parser_of

SAMPLES = Path(__file__).parents[3] / "shared" / "samples"
TOOLS = {
    "nvidia-smi-q-*": ("nvidia-smi-q", "gpus"),
    "nvidia-smi-topo-m-*": ("nvidia-smi-topo", "gpus"),
    "nvidia-smi-topo-p2p-*": ("nvidia-smi-p2p", "gpus"),
    "nvidia-smi-L-*": ("nvidia-smi-list", "gpus"),
    "nvidia-smi-nvlink-*": ("nvidia-smi-nvlink", "gpus"),
    "nvidia-smi-query-gpu-*": ("nvidia-smi-query", "gpus"),
    "nvidia-smi-query-retired-*": ("nvidia-smi-query", "gpus"),
    "nvidia-smi-query-compute-*": ("compute-apps", "processes"),
    "nvidia-smi-error-*": ("nvidia-smi-query", "gpus"),
    "nvidia-smi-table-*": ("nvidia-smi-q", "gpus"),
    "dcgmi-diag-*": ("dcgmi-diag", "tests"),
    "nvbandwidth-*": ("nvbandwidth", "tests"),
}
FILES = [(path, *tool) for pattern, tool in TOOLS.items() for path in sorted(SAMPLES.glob(f"{pattern}.txt"))]
# what is right to refuse, and what the refusal must say; a table of nvidia-smi without options is no report
REFUSED = {
    "nvidia-smi-nvlink-status-a10.txt": "empty",
    "nvidia-smi-error-invalid-field.txt": "not a valid field",
    "nvidia-smi-error-messages.txt": "Unable to determine the device handle",
}
pytestmark = pytest.mark.skipif(not FILES, reason="the samples of real machines are not beside this checkout")


@pytest.mark.parametrize(("path", "tool", "rows"), FILES, ids=[path.name for path, _, _ in FILES])
def test_sample(path: Path, tool: str, rows: str) -> None:
    text = path.read_text(errors="replace")
    reason = "GPU <bus id>" if path.name.startswith("nvidia-smi-table-") else REFUSED.get(path.name)
    if reason is not None:
        with pytest.raises(ParseError, match=reason):
            parser_of(tool)(text)
        return
    document = as_document(parser_of(tool)(text))
    assert document[rows]
    attached = document.get("attached_gpus")
    # telegraf's sample of four GPUs shows the first alone
    assert attached in (None, len(document[rows])) or path.name == "nvidia-smi-q-x-a100-sxm4-v12.txt"


def test_values_that_are_easily_mistaken() -> None:
    def gpu(name: str) -> dict[str, object]:
        found = as_document(parser_of("nvidia-smi-q")((SAMPLES / name).read_text()))["gpus"][0]
        assert isinstance(found, dict)
        return found

    load = gpu("nvidia-smi-q-load-h100-80gb-hbm3-590.48.01.txt")
    assert (load["power_draw_w"], load["memory_power_draw_w"], load["temperature_c"]) == (629.45, 85.83, 59)
    assert [each["memory_mib"] for each in load["processes"]] == [2566, 1542, 15690]  # type: ignore[attr-defined]
    turing = gpu("nvidia-smi-q-rtx-2080-super-610.57.04.txt")
    assert (turing["power_draw_w"], turing["power_limit_w"], turing["power_limit_max_w"]) == (38.89, 250.0, 350.0)
    broken = gpu("nvidia-smi-q-a10-535.129.03.txt")
    assert (broken["remap_pending"], broken["remapped_uncorrectable"], broken["remap_failure"]) == (True, 4, False)
    mig = gpu("nvidia-smi-q-x-a100-sxm4-v12.txt")
    assert [each["gpu_instance_id"] for each in mig["mig_devices"]] == [3, 4, 5, 6]  # type: ignore[attr-defined]
