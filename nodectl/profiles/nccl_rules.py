"""NCCL variables that the stack's NCCL refuses, lowers or does not need."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.profiles.nccl import version_key
from nodectl.profiles.problem import Problem
from nodectl.profiles.schema import Tuning

# from this version on a collective without an allowed algorithm is an error
_STRICT_ALGORITHMS = "2.24"
# from this version on NCCL finds the GID index by itself
_OWN_GID = "2.21"
_MAX_SOCKETS = 64


def finds_gid_index(nccl: str | None) -> bool:
    """This NCCL finds the RoCE v2 GID index by itself, or there is no NCCL to do so."""
    return nccl is None or version_key(nccl) >= version_key(_OWN_GID)


def nccl_problems(tuning: Tuning, nccl: str | None) -> Iterator[Problem]:
    """What this NCCL makes of the tuning's variables; nothing for a stack without NCCL."""
    if nccl is None:
        return
    env = {name: setting.render(nccl) for name, setting in tuning.nccl.items()}
    yield from _algorithm(env.get("NCCL_ALGO", ""), nccl)
    yield from _sockets(env)
    if "NCCL_IB_GID_INDEX" in env and finds_gid_index(nccl):
        yield Problem(
            "nccl-gid-index",
            f"NCCL_IB_GID_INDEX is set, and NCCL {nccl} finds the index by itself from {_OWN_GID} on",
            "NCCL user guide, networking troubleshooting",
            "no NCCL_IB_GID_INDEX",
            mild=True,
        )
    protocols = env.get("NCCL_PROTO", "")
    if "LL128" in protocols.upper() and not protocols.startswith("^"):
        yield Problem(
            "nccl-ll128",
            f"NCCL_PROTO={protocols} forces LL128 also where the platform does not keep its data whole",
            "NCCL user guide, NCCL_PROTO; NVIDIA/nccl issue 1081",
            "no NCCL_PROTO",
            mild=True,
        )


def _algorithm(value: str, nccl: str) -> Iterator[Problem]:
    """A bare list is meant for all collectives; only Ring can do them all."""
    if version_key(nccl) < version_key(_STRICT_ALGORITHMS) or not value or value[0] == "^":
        return
    everywhere = [part for part in value.lower().split(";") if ":" not in part]
    named = {algorithm.strip() for part in everywhere for algorithm in part.split(",")}
    meant = ",".join(sorted(named))
    if everywhere and "ring" not in named:
        yield Problem(
            "nccl-algo-bare",
            f"NCCL_ALGO={value} makes every collective but all_reduce fail with NCCL {nccl}: "
            f"from {_STRICT_ALGORITHMS} on there is no fallback",
            "NCCL user guide, NCCL_ALGO; NCCL 2.30.7, src/enqueue.cc",
            f"NCCL_ALGO=ring,{meant};allreduce:{meant}",
        )


def _sockets(env: dict[str, str]) -> Iterator[Problem]:
    threads, sockets = env.get("NCCL_SOCKET_NTHREADS", ""), env.get("NCCL_NSOCKS_PERTHREAD", "")
    if threads.isdecimal() and sockets.isdecimal() and int(threads) * int(sockets) > _MAX_SOCKETS:
        lowered = _MAX_SOCKETS // max(int(threads), 1)
        yield Problem(
            "nccl-sockets",
            f"NCCL_SOCKET_NTHREADS={threads} with NCCL_NSOCKS_PERTHREAD={sockets} are more than {_MAX_SOCKETS} "
            "sockets, which NCCL lowers",
            "NCCL source, net_socket.cc",
            f"NCCL_NSOCKS_PERTHREAD={lowered}",
            mild=True,
        )
