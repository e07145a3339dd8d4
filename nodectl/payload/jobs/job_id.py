"""What operators and nodes must mean alike: the version of a plan, and which texts may be the id of a job."""

import re

PLAN_VERSION = 1
# a node's word for an id names a folder, and the same job on other hosts
ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


def is_job_id(text: str) -> bool:
    """Tell whether it may be the id of a job."""
    return ID.fullmatch(text) is not None
