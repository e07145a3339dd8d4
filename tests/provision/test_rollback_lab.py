"""There and back on the lab's real hosts, compared by a script that knows nothing of nodectl's records."""

from collections.abc import Callable

import pytest

from nodectl.common.resources import share_dir
from tests.playbooks import ansible_playbook
from tests.provision.conftest import Fleet

ARTICLE = "article-20g"
SETTINGS = ("--tags", "limits,kernel_settings,nccl_env")
# lower than the article's maximum, and with a default above the article's 87380
OWN_RMEM, RAISED_RMEM = "4096 131072 6291456", "4096 131072 16777216"

pytestmark = pytest.mark.lab


@pytest.fixture
def article(fleet: Callable[..., Fleet]) -> Fleet:
    """Two hosts with things of their own: TCP buffers on one, NCCL's file on the other."""
    made = fleet("node01", "node02", nodectl_tuning=ARTICLE)
    made.lab.ssh("node01", f"sysctl -qw net.ipv4.tcp_rmem='{OWN_RMEM}'")
    made.lab.ssh("node02", "echo NCCL_IB_TIMEOUT=23 > /etc/nccl.conf; chmod 640 /etc/nccl.conf")
    return made


@pytest.mark.slow
def test_there_and_back_leaves_each_host_as_it_was(article: Fleet) -> None:
    before = article.snapshot()
    run = article.run("provision", *SETTINGS)
    assert all(tally["changed"] for tally in run["hosts"].values()), run["said"]
    assert "net.ipv4.tcp_rmem: kept at" in run["said"] and "not settable on this host" in run["said"]
    assert article.lab.ssh("node01", "sysctl -n net.ipv4.tcp_rmem").split() == RAISED_RMEM.split()
    listed = article.run("rollback", "--list")["runs"]
    assert {host: [entry["run"] for entry in held] for host, held in listed.items()} == {
        host: [run["run"]] for host in article.hosts
    }
    assert listed["node01"][0]["profiles"]["tuning"] == ARTICLE and "@" in listed["node01"][0]["by"]
    declined = article.run("rollback", status=1, input="n\n")
    assert "path /etc/sysctl.d/90-nodectl.conf: remove" in declined["said"], declined["said"]
    assert "nothing was changed" in declined["said"]
    back = article.run("rollback")
    assert back["schema"] == "nodectl.rollback/1" and back["rollback"]["node01"]["runs"] == [run["run"]]
    article.assert_as(before)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_role_twice_checked_and_back(article: Fleet) -> None:
    before = article.snapshot()
    assert all(count > 0 for count in article.changed("provision", "--check"))
    article.assert_as(before)
    article.run("provision")
    provisioned = article.snapshot()
    assert article.changed("provision") == {0}
    assert article.changed("provision", "--check") == {0}
    article.assert_as(provisioned)
    assert all(count == 1 for count in article.changed("rollback", "--check", "--to", "start"))
    article.assert_as(provisioned)
    article.run("rollback", "--to", "start")
    article.assert_as(before)
    assert article.changed("rollback") == {0}


@pytest.mark.slow
def test_a_later_run_alone_is_taken_back(fleet: Callable[..., Fleet]) -> None:
    """`--to RUN` is the state as that run left it, also on a host where it changed nothing."""
    first = fleet("node01", "node02")
    before = first.snapshot()
    run = first.run("provision", "--tags", "nccl_env", "-l", "node01")["run"]
    after_first = first.snapshot()
    both = fleet("node01", "node02", nodectl_nccl_env={"NCCL_IB_TIMEOUT": "22"})
    both.run("provision", "--tags", "nccl_env")
    both.run("rollback", "--to", run)
    both.assert_as(after_first)
    unknown = both.run("rollback", "--to", "20200101T000000Z-1", status=1)
    assert "No host has a run" in unknown["said"]
    both.run("rollback", "--to", "start")
    both.assert_as(before)


@pytest.mark.slow
def test_plain_ansible_playbook_records_one_name_on_all_hosts(fleet: Callable[..., Fleet]) -> None:
    hosts = fleet("node01", "node02")
    before = hosts.snapshot()
    for playbook in ("site.yml", "rollback.yml"):
        path = str(share_dir() / "playbooks" / playbook)
        tags = ["--tags", "limits,nccl_env"] if playbook == "site.yml" else []
        done = ansible_playbook("-i", hosts.inventory, path, *tags, cwd=share_dir(), env=dict(hosts.cli.env))
        assert done.returncode == 0, done.stdout + done.stderr
        if playbook == "site.yml":
            held = hosts.run("rollback", "--list")["runs"]
            names = {entry["run"] for runs in held.values() for entry in runs}
            assert len(names) == 1 and all(len(runs) == 1 for runs in held.values())
    hosts.assert_as(before)
