"""What /etc/hosts calls the others of a fleet: whose mistake it is, and what is no mistake."""

from collections.abc import Mapping

import pytest

from nodectl.checks.fleet.compare import Member, compare
from nodectl.checks.fleet.names import Named

RIGHT = {"n1": ("10.0.0.1",), "n2": ("10.0.0.2",), "n3": ("10.0.0.3",), "n4": ("10.0.0.4",), "localhost": ("::1",)}
Book = Mapping[str, tuple[str, ...]]


def told(**books: Book) -> list[tuple[str, str]]:
    """Four hosts, whose names mean what is right where nothing else is given."""
    fleet = [
        Member(host, "dgx", names=Named(books.get(host, RIGHT), frozenset(RIGHT[host])))
        for host in RIGHT
        if host != "localhost"
    ]
    return [(each.host, each.actual) for each in compare(fleet) if each.check == "fleet_hosts_file" and each.remedy]


def test_one_host_that_has_another_address_is_named() -> None:
    assert told() == []
    assert told(n3=RIGHT | {"n1": ("10.0.9.9",)}) == [("n3", "n1 is 10.0.9.9 there, and n1 has no such address")]


def test_a_name_that_only_one_host_knows_is_held_against_the_peer_itself() -> None:
    (only,) = told(n1={"n2": ("10.0.0.3",)}, n2={}, n3={}, n4={})
    assert only == ("n1", "n2 is 10.0.0.3 there, and n2 has no such address")


def test_where_most_agree_the_named_host_has_lost_its_address() -> None:
    stale = RIGHT | {"n4": ("10.0.0.44",)}
    (only,) = told(n1=stale, n2=stale, n3=stale)
    assert only[0] == "n4" and "n1, n2, n3 have n4 as 10.0.0.44" in only[1]


@pytest.mark.parametrize(
    "book", [{"n1": ("127.0.1.1",)}, {"elsewhere": ("10.0.0.2",)}, {"n2": ("10.0.0.2",), "localhost": ("127.0.0.1",)}]
)
def test_a_host_s_own_name_and_names_of_others_are_no_mistake(book: Book) -> None:
    assert told(n1=book) == []
