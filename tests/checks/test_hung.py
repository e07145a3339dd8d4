"""A tool that hangs is one finding; what it would have told is not repeated by every check that wanted it."""

from collections.abc import Callable
from dataclasses import replace

from nodectl.health.host import REPLAYED, HostHealth, judge_answer, order_of
from nodectl.model.finding import Finding
from nodectl.model.recording import Entry, Recording
from nodectl.model.status import Status
from nodectl.recordings.folder import open_recording
from nodectl.recordings.source import replay_source

Edit = Callable[[Entry], Entry]


def judged(edit: Edit = lambda entry: entry) -> HostHealth:
    """The host of a bundled recording, its entries edited."""
    source = replay_source(open_recording("dgx-a100"), None)
    order = order_of(source.hosts[0], {}, (), occasions=REPLAYED)
    recording = source.one(order.host, order.commands)
    assert isinstance(recording, Recording)
    entries = {key: edit(entry) for key, entry in recording.entries.items()}
    return judge_answer(order, replace(recording, entries=entries))


def hang(entry: Entry) -> Entry:
    if not entry.key.startswith("nvidia-smi"):
        return entry
    waited_s, said = (0.0, "nodectl: not asked: nvidia-smi hung") if entry.key != "nvidia-smi-q" else (20.0, "")
    return replace(entry, exit_status=124, stdout="", stderr=said, duration_s=waited_s)


def bad(findings: tuple[Finding, ...]) -> set[Finding]:
    return {finding for finding in findings if finding.status not in (Status.OK, Status.SKIPPED)}


def test_a_hung_nvidia_smi_is_one_finding() -> None:
    well, ill = judged(), judged(hang)
    (found,) = bad(ill.findings) - bad(well.findings)
    assert (found.check, found.subject, found.status, found.action) == ("hung", "nvidia-smi", Status.FAILED, "drain")
    assert "nvidia-smi did not end in time, 20 s (7 commands" in found.actual
    assert not [finding for finding in ill.findings if finding.check in ("df", "mounts") and finding in bad((finding,))]


def flood(entry: Entry) -> Entry:
    if not entry.key.startswith("nvidia-smi"):
        return entry
    if entry.key == "nvidia-smi-q":
        return replace(entry, exit_status=None, cut=True, stdout="", stderr="nodectl: cut: nvidia-smi printed too much")
    said = "nodectl: not asked: nvidia-smi printed too much"
    return replace(entry, exit_status=124, stdout="", stderr=said, duration_s=0.0)


def test_an_nvidia_smi_that_prints_without_end_is_one_finding() -> None:
    well, ill = judged(), judged(flood)
    (found,) = bad(ill.findings) - bad(well.findings)
    assert (found.check, found.subject, found.status, found.action) == ("hung", "nvidia-smi", Status.FAILED, "drain")
    assert "nvidia-smi printed too much" in found.actual
    assert "see what it prints" in found.remedy


def test_what_only_root_sees_is_answered_by_sudoers() -> None:
    def refused(entry: Entry) -> Entry:
        if entry.key != "dmesg":
            return entry
        return replace(entry, exit_status=1, stdout="", stderr="sudo: a password is required\n")

    remedies = {finding.remedy for finding in judged(refused).findings if finding.check in ("xid", "oom")}
    assert remedies == {"let the login run by sudo there what `nodectl sudoers` prints"}
