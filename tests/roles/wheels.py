"""Small real wheels for tests: a distribution with one module, an index of such, and a lock's line for one."""

import hashlib
import zipfile
from pathlib import Path


def wheel(folder: Path, name: str, version: str, needs: tuple[str, ...] = ()) -> Path:
    """`name`-`version` whose module says its version; called a stand-in in its own summary."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": f'__version__ = "{version}"\n',
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: a stand-in for tests\n"
        + "".join(f"Requires-Dist: {need}\n" for need in needs),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name}-run = {name}:__name__.strip\n",
    }
    record = "".join(f"{entry},,\n" for entry in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for entry, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(entry, text)
    return path


def simple_index(folder: Path, *packages: tuple[str, ...]) -> str:
    """A package index (PEP 503) of stand-ins (name, version, needs), as uv reads one from files; its address."""
    for name, version, *needs in packages:
        wheel(folder / name, name, version, tuple(needs))
        names = [path.name for path in (folder / name).glob("*.whl")]
        (folder / name / "index.html").write_text("".join(f'<a href="{made}">{made}</a>' for made in names))
    return folder.as_uri()


def locked_line(folder: Path, name: str, version: str) -> str:
    """`name==version` with the digest of the wheel that lies in the folder."""
    (made,) = folder.glob(f"{name}-{version}-*.whl")
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(made.read_bytes()).hexdigest()}"
