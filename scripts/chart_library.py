#!/usr/bin/env python3
"""Make the charts' library of the report anew: ECharts with no more of it than the report draws, and its licences.

usage: scripts/chart_library.py [--check]     needs npm and a registry; --check says whether the file is as it is made
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "nodectl" / "report" / "page"
LIBRARY, LICENCES = PAGE / "echarts.min.js", PAGE / "echarts.LICENSES"
# exact versions: the same file comes out of them
VERSIONS = {"echarts": "6.1.0", "zrender": "6.1.0", "tslib": "2.3.0", "esbuild": "0.28.2"}
BANNER = "/*! Apache ECharts {echarts} (Apache-2.0), with zrender {zrender} (BSD-3-Clause) and tslib {tslib} (0BSD) */"
ENTRY = """
export { init } from 'echarts/core';
import { use } from 'echarts/core';
import { CustomChart, HeatmapChart, LineChart } from 'echarts/charts';
import { GridComponent, LegendPlainComponent, TooltipComponent } from 'echarts/components';
import { VisualMapContinuousComponent } from 'echarts/components';
import { SVGRenderer } from 'echarts/renderers';
use([CustomChart, HeatmapChart, LineChart, GridComponent, LegendPlainComponent, TooltipComponent,
  VisualMapContinuousComponent, SVGRenderer]);
"""


def main() -> int:
    """Write both files, or with --check compare them; 1 where they differ."""
    with tempfile.TemporaryDirectory() as folder:
        made = built(Path(folder))
    if sys.argv[1:] == ["--check"]:
        differing = [path.name for path, text in made.items() if path.read_text(encoding="utf-8") != text]
        print(
            f"chart_library: not as it is made: {', '.join(differing)}" if differing else "chart_library: as it is made"
        )
        return 1 if differing else 0
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
        print(f"chart_library: {path.name}: {len(text.encode()):,} bytes")
    return 0


def built(folder: Path) -> dict[Path, str]:
    """Both files' texts, by their paths."""
    packages = [f"{name}@{version}" for name, version in VERSIONS.items()]
    (folder / "package.json").write_text("{}", encoding="utf-8")
    (folder / "entry.js").write_text(ENTRY, encoding="utf-8")
    _run(folder, "npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", *packages)
    _run(
        folder,
        *("node_modules/.bin/esbuild", "entry.js", "--bundle", "--minify", "--format=iife", "--global-name=echarts"),
        *("--target=es2020", "--charset=ascii", "--legal-comments=none", "--log-level=warning"),
        *('--define:process.env.NODE_ENV="production"', "--outfile=out.js"),
    )
    modules = folder / "node_modules"
    texts = [
        (modules / name / file).read_text(encoding="utf-8").strip()
        for name, file in (
            *(("echarts", "LICENSE"), ("echarts", "NOTICE"), ("echarts", "licenses/LICENSE-d3")),
            *(("zrender", "LICENSE"), ("tslib", "LICENSE.txt")),
        )
    ]
    program = (folder / "out.js").read_text(encoding="utf-8").strip()
    return {
        LIBRARY: f"{BANNER.format(**VERSIONS)}\n{program}\n",
        LICENCES: "\n\n\n".join([BANNER.format(**VERSIONS)[4:-3], *texts]) + "\n",
    }


def _run(folder: Path, *argv: str) -> None:
    subprocess.run(argv, cwd=folder, check=True)


if __name__ == "__main__":
    sys.exit(main())
