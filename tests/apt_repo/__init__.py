"""A signed apt repository with the names, versions and dependencies of NVIDIA's, and nothing that runs on a GPU."""

from tests.apt_repo.build import Repository, build
from tests.apt_repo.serve import served

__all__ = ["Repository", "build", "served"]
