"""A signed dnf repository with the names, versions and streams of NVIDIA's, and nothing that runs on a GPU."""

from tests.rpm_repo.build import Repository, build

__all__ = ["Repository", "build"]
