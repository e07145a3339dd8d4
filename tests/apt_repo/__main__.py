"""`python -m tests.apt_repo FOLDER`: the repository for Debian 12 with the distribution's part, a mirror for a lab."""

import argparse
from pathlib import Path

from tests.apt_repo.build import build


def main() -> None:
    """Print the key's file and its SHA-256."""
    parser = argparse.ArgumentParser(prog="python -m tests.apt_repo", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    repository = build(parser.parse_args().folder, ["debian12"], archive=True)
    print(f"{repository.key_file} {repository.sha256}")  # noqa: T201  # a program of its own


if __name__ == "__main__":
    main()
