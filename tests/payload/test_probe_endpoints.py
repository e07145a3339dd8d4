"""Where a host takes part in a probe."""

import pytest

from nodectl.payload.probes import endpoints

HERE = ("lo", "127.0.0.1"), ("eth0", "192.0.2.7"), ("eth1", "198.51.100.7")


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A host with two interfaces, which knows its own name as Debian writes it into /etc/hosts."""
    monkeypatch.setattr(endpoints, "addresses", lambda: list(HERE))
    monkeypatch.setattr(
        endpoints, "is_local", lambda address: address.startswith("127.") or address in dict(HERE).values()
    )
    names = {"gpu01": ["127.0.1.1"], "gpu01.rail1": ["198.51.100.7"], "localhost": ["127.0.0.1"]}
    monkeypatch.setattr(endpoints, "resolve", lambda name: names.get(name, [name]))
    return monkeypatch


@pytest.mark.parametrize(
    ("name", "reached", "chosen"),
    [
        ("gpu01", "192.0.2.7", ("eth0", "192.0.2.7")),
        ("gpu01.rail1", "192.0.2.7", ("eth1", "198.51.100.7")),
        ("203.0.113.9", "192.0.2.7", ("eth0", "192.0.2.7")),
        ("localhost", "127.0.0.1", ("lo", "127.0.0.1")),
        ("gpu01", "", ("", "127.0.1.1")),
    ],
)
def test_the_address_is_one_at_which_others_reach_it(
    host: pytest.MonkeyPatch, name: str, reached: str, chosen: tuple[str, str]
) -> None:
    connection = f"192.0.2.1 50000 {reached} 22" if reached else ""
    host.setenv("SSH_CONNECTION", connection)
    assert endpoints.choose(name, None) == chosen


def test_the_interface_that_was_asked_for_goes_first(host: pytest.MonkeyPatch) -> None:
    assert endpoints.choose("gpu01", "eth1") == ("eth1", "198.51.100.7")
    with pytest.raises(RuntimeError, match="no interface eth9"):
        endpoints.choose("gpu01", "eth9")
