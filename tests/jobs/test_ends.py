"""Ways in which an attempt ends, with `--restarts 5`: who stops, after how many starts, and who goes on.

Torchrun over gloo on two lab hosts, with a third one as a spare where a host is lost. A job that goes on must end with
the loss of a run that nothing disturbs.
"""

from __future__ import annotations

import pytest

from tests.jobs import ends
from tests.jobs.deaths import Case, Lab
from tests.jobs.test_restarts_lab import TRAIN, last_loss, undisturbed

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The last loss of two ranks that nothing disturbs."""
    folder = tmp_path_factory.mktemp("calm")
    (folder / "train.py").write_text(TRAIN)
    return undisturbed(folder / "train.py", folder / "checkpoints", ends.STEPS)


@pytest.mark.parametrize("end", [*ends.STOPS, *ends.GOES_ON], ids=lambda end: end.name)
def test_an_end_is_followed_by_as_many_starts_as_may_help(lab: Lab, end: ends.End, calm: str) -> None:
    lab.hosts = lab.hosts[: 3 if end.spare else 2]
    spares = ("--spares", "1") if end.spare else ()
    options = ("--restarts", "5", "--checkpoint", "/shared/run", "--lease", "5", *spares)
    job_id = lab.begin(Case(end.name, "", script=end.text(), options=options, args=end.args))
    try:
        if end.act is not None:
            lab.wait_up(job_id)
            end.act(lab, job_id)
        job = lab.wait_ended(job_id)
        goes_on = end in ends.GOES_ON
        assert (job["state"], job["attempt"]) == ("finished" if goes_on else "failed", end.starts), (
            job["no_restart"],
            job["past_attempts"],
            job["first_failure"],
        )
        assert end.why in job["no_restart"], job["no_restart"]
        if goes_on:
            assert last_loss(lab.run("jobs", "logs", job_id).stdout) == calm
        if end.spare:
            assert job["nodes"] == [lab.hosts[0], lab.hosts[2]], job["nodes"]
    finally:
        lab.nodectl("lab", "heal", "--name", lab.lab.status["name"])
        for host in lab.hosts:
            lab.lab.ssh(host, "rm -rf /shared/run")
