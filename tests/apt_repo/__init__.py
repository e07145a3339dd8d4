"""A signed apt repository with the names, versions and dependencies of NVIDIA's, and nothing that runs on a GPU."""

from tests.apt_repo.build import Repository, build

__all__ = ["Repository", "build"]
