"""Which texts may be the id of a job: a node's word for one names a folder, and the same job on other hosts."""

import re

ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


def is_job_id(text: str) -> bool:
    """It may be the id of a job."""
    return ID.fullmatch(text) is not None
