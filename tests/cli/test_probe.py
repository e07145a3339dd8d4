"""`nodectl probe`: each probe with its own options, several with the common ones, and none at all."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nodectl.cli import probe as probe_command
from nodectl.cli.root import cli
from nodectl.probes.base import ProbeOptions
from nodectl.probes.options import Sizes
from nodectl.probes.registry import AnyProbe, listed
from nodectl.probes.tcp import TcpOptions

INVENTORY = "all: {hosts: {a: {ansible_host: 192.0.2.1}, b: {ansible_host: 192.0.2.2}}}\n"
Asked = Callable[..., dict[str, Any]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Asked:
    """What would be measured: options by probe, and those of the run under ''."""
    (tmp_path / "hosts.yml").write_text(INVENTORY)

    def measure(_: Any, wanted: Sequence[tuple[AnyProbe, ProbeOptions]], names: str, given: Any) -> None:
        found.update({probe.name: options for probe, options in wanted})
        found[""] = {"names": names, **{name: given[name] for name in ("budget", "force", "compare")}}

    found: dict[str, Any] = {}
    monkeypatch.setattr(probe_command, "_measure", measure)

    def ask(*args: str, settings: str = "", **env: str) -> dict[str, Any]:
        found.clear()
        (tmp_path / "nodectl.toml").write_text(settings)
        done = CliRunner(env=env).invoke(cli, ["-i", str(tmp_path / "hosts.yml"), "probe", *args])
        assert done.exit_code == 0, (done.output, done.exception)
        return dict(found)

    return ask


def test_a_probe_has_its_own_options_and_the_common_ones(asked: Asked) -> None:
    found = asked("tcp", "--streams", "4", "--repetitions", "2", "--rounds", "3", "--budget", "5m", "--force")
    assert found["tcp"] == TcpOptions(streams=4, repetitions=2, rounds=3)
    assert found[""] == {"names": "tcp", "budget": 300.0, "force": True, "compare": None}
    found = asked("nccl", "--sizes", "1MiB..8MiB", "--collectives", "all_reduce,broadcast", "--scope", "pairs")["nccl"]
    assert found.sizes == Sizes(tuple(n << 20 for n in (1, 2, 4, 8)))
    assert (found.collectives, found.scope) == (("all_reduce", "broadcast"), "pairs")
    found = asked("rdma", "--message-size", "64KiB", "--gid-index", "3", "--device", "mlx5_0")["rdma"]
    assert (found.message_bytes, found.gid_index, found.device) == (65536, 3, ("mlx5_0",))


def test_several_take_the_common_options(asked: Asked) -> None:
    found = asked("tcp,memory,nccl", "--duration", "2", "--rounds", "all")
    assert list(found) == ["tcp", "memory", "nccl", ""]
    assert {found[name].duration_s for name in ("tcp", "memory", "nccl")} == {2.0}
    assert isinstance(found["tcp"], TcpOptions) and found["tcp"].rounds == 0
    assert list(asked("network")) == ["latency", "nccl", "rdma", "tcp", ""]
    assert [name for name in asked("all") if name] == [probe.name for probe in listed()]
    assert [name for name in asked("tcp,gpu,tcp") if name] == ["tcp", "gemm", "h2d", "hbm", "nccl", "p2p"]


def test_settings_and_environment(asked: Asked) -> None:
    settings = "[probe]\nduration = 2.0\n[probe.tcp]\nstreams = 4\n[probe.memory]\nrepetitions = 7\n"
    assert asked("tcp", settings=settings)["tcp"] == TcpOptions(duration_s=2.0, streams=4)
    both = asked("tcp,memory", settings=settings)
    assert both["tcp"] == TcpOptions(duration_s=2.0, streams=4)
    assert asked("tcp", "--streams", "5", settings=settings)["tcp"].streams == 5
    assert asked("tcp", settings=settings, NODECTL_PROBE_TCP_STREAMS="6")["tcp"].streams == 6
    assert asked("tcp,latency", NODECTL_PROBE_STREAMS="7", NODECTL_PROBE_DURATION="9")["tcp"] == TcpOptions(
        duration_s=9.0, streams=7
    )
    # a table named like an option of another probe is no value of it
    assert asked("rdma", settings="[probe.memory]\nrepetitions = 7\n")["rdma"].memory == "host"
    assert asked("rdma", settings="[probe]\nmemory = 'gpu'\n")["rdma"].memory == "gpu"
