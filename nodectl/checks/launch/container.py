"""What runs a job's container on its hosts, and whether all of them have the same image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodectl.checks.check import Check, odd_ones
from nodectl.checks.launch.candidate import Candidate, judges_together
from nodectl.facts.job import Containers
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 25

CONTAINER = Check(
    "launch_container",
    fires="not all hosts have one of them, or the image, or the same one",
)


@judges_together(CONTAINER, reads=("containers",))
def container(hosts: Sequence[Candidate]) -> Iterator[Finding]:
    """Judge engine and image: one that is fetched in the middle of a start keeps all other hosts waiting."""
    needs = hosts[0].needs
    if not needs.image:
        return
    engine = container_engine(hosts)
    images = {host.host: _images(host).get(engine, "") for host in hosts}
    _, odd = odd_ones({host: image for host, image in images.items() if image})
    for host in hosts:
        installed, image = ", ".join(_images(host)), images[host.host]
        status, actual, remedy = Status.OK, f"{engine}, image {image[:12]}", ""
        if engine not in _images(host):
            status, actual = Status.FAILED, f"only {installed} is installed" if installed else "none is installed"
            remedy = f"install {engine or 'docker, podman or apptainer'} on {host.host}, or name another engine"
        elif not image:
            fetch = f"nodectl exec --limit {host.host} -- {engine} pull {needs.image}"
            status, actual = Status.FAILED, f"{engine} has no image {needs.image}"
            remedy = f"copy it to {host.host}" if needs.image.startswith("/") else f"`{fetch}`"
        elif host.host in odd:
            status, actual = Status.FAILED, f"{engine} has another image of that name: {image[:12]}"
            remedy = "pull it anew on all hosts, or name it by its digest"
        expected = f"{engine or 'docker, podman or apptainer'} with {needs.image}, one for all"
        yield host.finding(CONTAINER, status, needs.image, expected=expected, actual=actual, remedy=remedy)


def _images(host: Candidate) -> dict[str, str]:
    return dict(host.known("containers", Containers).images)


def container_engine(hosts: Sequence[Candidate]) -> str:
    """Return the first engine with which all hosts have the image; else what most have, or "" for none anywhere."""
    engines = list(dict.fromkeys(engine for host in hosts for engine in _images(host)))
    complete = [engine for engine in engines if all(_images(host).get(engine) for host in hosts)]
    most = max(engines, key=lambda engine: sum(engine in _images(host) for host in hosts), default="")
    return next(iter(complete), most)
