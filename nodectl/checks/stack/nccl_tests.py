"""Whether the programs of nccl-tests measure the NCCL that training loads: asked by verify alone."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, failed_unless, judges
from nodectl.checks.stack.versions import same
from nodectl.common import node_paths
from nodectl.facts.nccl_tests import NcclTests, NcclTestsBuild
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 35

NCCL_TESTS = Check(
    "nccl_tests",
    looks_at=f"{node_paths.NCCL_TESTS}, at the end of provision and verify",
    fires="not built from the stack's source, NCCL and toolkit, or they load another NCCL; warning: no nvcc",
    expected="built",
    remedy="run `nodectl provision --tags nccl_tests`",
    roles=("nccl_tests",),
)


@judges(NCCL_TESTS, reads=("nccl_tests",))
def nccl_tests(host: Subject) -> Iterator[Finding]:
    """Where the stack has them."""
    found = host.facts.get("nccl_tests")
    version = host.wanted.stack.nccl_tests if host.wanted else None
    if found is None or not version:
        return
    yield from host.unread(NCCL_TESTS, found, "built")
    if not isinstance(found, NcclTests):
        return
    program = f"{node_paths.NCCL_TESTS}/{version}/all_reduce_perf"
    if not found.cuda:
        remedy = "give the stack a toolkit, or set nccl_tests_cuda_home"
        yield host.finding(NCCL_TESTS, Status.WARNING, program, actual="not built: no nvcc", remedy=remedy)
        return
    build = next((each for each in found.builds if each.note.get("version") == version), None)
    if build is None or build.note.get("nccl") != found.headers or build.note.get("cuda") not in found.cuda:
        actual = "built from something else" if build else "not there"
        yield host.finding(NCCL_TESTS, Status.FAILED, program, actual=actual)
        return
    yield from _loaded(host, found, build)


def _loaded(host: Subject, found: NcclTests, build: NcclTestsBuild) -> Iterator[Finding]:
    own, library = found.own_library, build.library
    expected = own or "the NCCL inside torch"
    agree = bool(own) and library == own
    status = Status.OK if agree else Status.WARNING if library and not own else Status.FAILED
    yield host.finding(NCCL_TESTS, status, "library", expected=expected, actual=library or "no libnccl")
    # the file of a library carries its version, where it carries any
    named = library.rpartition(".so.")[2]
    if named.count("."):
        headers = found.headers
        status = failed_unless(same(named, headers) or same(headers, named))
        yield host.finding(NCCL_TESTS, status, "headers", expected=named, actual=headers)
    if build.run_error is not None:
        actual = build.run_error or "no wrong value"
        yield host.finding(
            NCCL_TESTS, failed_unless(not build.run_error), "run", expected="no wrong value", actual=actual
        )
