"""Links that come and go at random: two attempts of one job never have ranks at the same time, and it goes on after."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from nodectl.payload.jobs import heartbeat as hb
from nodectl.payload.jobs.attempts import Over, Rules, Succession
from nodectl.payload.jobs.heartbeat import Attempt, Beat

TICK_S, BEAT_S, END_S, START_S = 0.1, 0.5, 4.0, 30.0


@dataclass
class Node:
    """A host's supervisor with its rules of an attempt in short; who follows whom is decided by the real ones."""

    rank: int
    rules: Rules
    state: str = hb.WAITING
    since_s: float = 0.0
    number: int = 0
    failure: dict[str, object] | None = None
    over: Over | None = None
    missing: tuple[int, ...] = ()
    active: tuple[int, ...] = ()
    attempt: Attempt = field(init=False)
    succession: Succession = field(init=False)
    peers: hb.Peers = field(init=False)

    def __post_init__(self) -> None:
        self.succession = Succession(self.rules)
        self.peers = hb.Peers([rank for rank in range(self.rules.members) if rank != self.rank], self.rules.lease_s)
        self.begin(Attempt(1, self.rules.first), 0.0)

    @property
    def has_ranks(self) -> bool:
        return self.state in (hb.RUNNING, hb.ENDING)

    def begin(self, attempt: Attempt, now_s: float) -> None:
        self.attempt, self.failure, self.since_s = attempt, None, now_s
        self.state = hb.WAITING if self.rank in attempt.roster else hb.SPARE
        self.peers.begin(attempt)

    def beat(self) -> Beat:
        over = self.over.why if self.over else None
        fit = "" if self.state in (hb.RESTING, hb.SPARE) else None
        return Beat(
            self.rank, self.number, self.state, self.failure, self.attempt, over, fit, -1, self.missing, self.active
        )

    def fail(self, now_s: float) -> None:
        kind = {"kind": "signal", "message": "killed", "rank": 0, "exit_status": 137, "time": now_s}
        self.failure, self.since_s = kind, now_s
        self.state = hb.ENDING if self.state == hb.RUNNING else hb.RESTING

    def step(self, now_s: float) -> None:
        silent_s = self.peers.silent_s(now_s)
        self.missing = tuple(rank for rank, seconds in silent_s.items() if seconds > self.rules.lease_s)
        self.active = self.peers.active(now_s)
        if self.state in (hb.WAITING, hb.RUNNING):
            self.take_part(now_s)
        elif self.state == hb.ENDING and now_s - self.since_s > END_S:
            self.state = hb.RESTING
        elif self.state in (hb.RESTING, hb.SPARE):
            follows = self.succession.decide(self.beat(), self.peers.beats, silent_s, now_s)
            if isinstance(follows, Over):
                self.over, self.state = follows, follows.state
            elif follows is not None:
                self.begin(follows, now_s)

    def take_part(self, now_s: float) -> None:
        ends = self.peers.later_attempt() or self.peers.any_here_in(hb.ENDING, hb.RESTING, hb.FAILED)
        late = self.state == hb.WAITING and now_s - self.since_s > START_S
        alone = self.state == hb.RUNNING and 2 * (1 + self.peers.in_touch(self.rank, now_s)) <= self.rules.members
        if ends or late or alone or self.peers.newly_lost(now_s):
            self.fail(now_s)
        elif self.state == hb.WAITING and self.may_start(now_s):
            self.state = hb.RUNNING

    def may_start(self, now_s: float) -> bool:
        is_quorate = 2 * (1 + self.peers.in_attempt(now_s)) > self.rules.members
        return is_quorate and not self.peers.unheard() and not self.peers.others_have_ranks(now_s)


class Net:
    """Hosts and their links, each way by itself."""

    def __init__(self, rules: Rules, seed: int) -> None:
        self.random = random.Random(seed)
        self.nodes = [Node(rank, rules) for rank in range(rules.members)]
        self.cut: set[tuple[int, int]] = set()
        self.now_s = 0.0

    def disturb(self) -> None:
        """Other links are cut than before; perhaps a rank is killed."""
        size = len(self.nodes)
        pairs = [(one, other) for one in range(size) for other in range(size) if one != other]
        side = {rank for rank in range(size) if self.random.random() < 0.5}
        kinds: tuple[set[tuple[int, int]], ...] = (
            set(),
            {(one, other) for one, other in pairs if (one in side) != (other in side)},
            {pair for pair in pairs if self.random.random() < 0.3},
            {(one, other) for one, other in pairs if one == min(side, default=0)},
        )
        self.cut = self.random.choice(kinds)
        victim = self.random.choice(self.nodes)
        if victim.state == hb.RUNNING:
            victim.fail(self.now_s)

    def run(self, seconds: float) -> None:
        """Let time pass, and look at each moment who has ranks."""
        ends_s = self.now_s + seconds
        while self.now_s < ends_s:
            self.now_s += TICK_S
            for node in self.nodes:
                if not node.over or node.over.told:
                    self.send(node)
            for node in self.nodes:
                node.step(self.now_s)
            with_ranks = {node.attempt for node in self.nodes if node.has_ranks}
            assert len(with_ranks) <= 1, (self.now_s, [(node.rank, node.state, node.attempt) for node in self.nodes])

    def send(self, node: Node) -> None:
        if self.random.random() > TICK_S / BEAT_S:
            return
        node.number += 1
        for other in self.nodes:
            if other is not node and (node.rank, other.rank) not in self.cut and self.random.random() > 0.1:
                other.peers.hear(node.beat(), self.now_s)


@pytest.mark.parametrize(
    ("members", "most", "least"),
    [(3, 2, 2), (4, 2, 2), (5, 4, 2), (5, 2, 2), (3, 1, 1)],
    ids=["2+1", "2+2", "4+1, 2 do", "2+3", "1+2"],
)
def test_no_two_attempts_have_ranks_at_once_and_the_job_goes_on_when_the_links_do(
    members: int, most: int, least: int
) -> None:
    rules = Rules(members, least, most, restarts=1000, lease_s=8.0, grace_s=3.0, rejoin_s=10_000.0)
    for seed in range(2):
        net = Net(rules, seed)
        for _ in range(6):
            net.disturb()
            net.run(net.random.uniform(5, 60))
        net.cut = set()
        net.run(200)
        assert sum(node.state == hb.RUNNING for node in net.nodes) >= least, (seed, [vars(node) for node in net.nodes])
