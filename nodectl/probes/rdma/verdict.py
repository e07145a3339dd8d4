"""Why one test failed, from both ends' words and from what their ports showed meanwhile."""

from __future__ import annotations

from nodectl.probes.events import Event
from nodectl.probes.rdma.errors import Failure, Run, classify
from nodectl.probes.rdma.plan import Case


def failure_of(client: Event | None, server: Event | None, gone: str) -> Failure | None:
    """By what both ends said; the other end's way is lost where it is `gone`."""
    if client is None:
        found = _classified(server, None) if server is not None else None
        told = Failure(found.kind, found.text, by_partner=True) if found else None
    else:
        told = _classified(client, server)
    if gone and (told is None or told.kind in ("peer_lost", "timeout", "killed", "other", "no_client")):
        return Failure("link_cut", f"the other end does not answer any more: {gone}")
    return told


def _classified(own: Event, partner: Event | None) -> Failure | None:
    run = _run(own)
    other = None if partner is None else _run(partner)
    return classify(
        run.argv, run.exit_status, run.stdout, run.stderr,
        partner=other, timed_out=run.timed_out,
        # a server that had ended before the client came says so itself
        server_listens=None if other is None else other.timed_out or None,
    )  # fmt: skip


def _run(told: Event) -> Run:
    return Run(told["argv"], told["status"], told["stdout"], told["stderr"], told["timed_out"])


def seen_from_outside(case: Case, event: Event, failure: Failure) -> Failure:
    """Where nothing is carried, the ports tell whether the link is cut, or something keeps RoCE's packets back."""
    if event.get("gone") or not (failure.kind == "link_cut" or (failure.kind == "timeout" and _had_met(event))):
        return failure
    received = []
    for role, host, nic in zip(("client", "server"), (case.client, case.server), case.nics, strict=True):
        link = (event.get(role) or {}).get("link") or {}
        if link.get("state") not in (None, "ACTIVE"):
            return Failure("link_cut", f"{nic.port.label} of {host} is {link['state']} now; {failure.text}")
        before, after = nic.port.carrier_changes, link.get("carrier_changes")
        if before is not None and after is not None and after != before:
            return Failure("link_cut", f"{nic.port.netdev} of {host} lost its link meanwhile; {failure.text}")
        received.append(link.get("received"))
    addresses = {each.gid.ipv4 for each in case.nics if each.gid is not None and each.gid.ipv4}
    same_way = len(addresses) == 2 and addresses == set(event.get("addresses") or ())
    # TCP passes between the very same addresses, before and after, and of RDMA not one packet comes in at an end
    if same_way and 0 in received:
        text = f"TCP passes between the same addresses and both ports are up, RoCE (UDP 4791) does not; {failure.text}"
        return Failure("firewall", text)
    return failure


def _had_met(event: Event) -> bool:
    """Both ends had found each other: what is slow or stuck is RDMA, not their first talk."""
    return all("remote address:" in (event.get(role) or {}).get("stdout", "") for role in ("client", "server"))
