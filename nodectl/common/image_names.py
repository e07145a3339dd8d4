"""Names of container images, as docker, podman and Kubernetes read them."""

import re

_LONGEST_NAME = 255
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_REGISTRY = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9A-Fa-f]{32,}"
_IMAGE = re.compile(rf"((?:{_REGISTRY}/)?{_PART}(?:/{_PART})*)(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@{_DIGEST})?")


def is_image_name(text: str) -> bool:
    """Return whether it is `[REGISTRY[:PORT]/]NAME[:TAG][@DIGEST]`; the name itself in lower case."""
    match = _IMAGE.fullmatch(text)
    return match is not None and len(match[1]) <= _LONGEST_NAME
