"""Provisioning and its way back: requests, runs of the playbooks, and their events as values."""

from nodectl.provision.command import ProvisionRequest
from nodectl.provision.events import (
    Answer,
    HostTally,
    ProvisionRun,
    TaskEvent,
    failure_text,
    read_event,
    read_tallies,
    report_text,
)
from nodectl.provision.run import provision

__all__ = [
    "Answer",
    "HostTally",
    "ProvisionRequest",
    "ProvisionRun",
    "TaskEvent",
    "failure_text",
    "provision",
    "read_event",
    "read_tallies",
    "report_text",
]
