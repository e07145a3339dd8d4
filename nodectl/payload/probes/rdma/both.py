"""Both ends of tests on this one host: perftest's server on a NIC, its client on another one or on the same."""

from typing import Any, Dict, List, Optional

from ...common.events import say
from .ends import Ends, has_failed

HERE = "127.0.0.1"


class Lane:
    """One test; `runs` is what is known of it: None of an end that was not started."""

    def __init__(self, plan: List[Dict[str, Any]], number: int) -> None:
        self.number = number
        self.runs: Dict[str, Optional[Dict[str, Any]]] = {"server": None, "client": None}
        self._server, self._client = Ends(plan, HERE, 0), Ends(plan, HERE, 0)
        self._port: Optional[int] = None

    def serve(self) -> None:
        """Start the server, and wait until it listens."""
        started = self._server.start_server(self.number)
        self.runs["server"], self._port = started.get("run"), started.get("port")

    def ask(self) -> None:
        """Start the client, where its server listens."""
        if self._port is not None:
            self.runs["client"] = self._client.start_client(self.number, HERE, self._port)

    def finish(self) -> None:
        """Wait for both."""
        if self._port is None:
            return
        if self.runs["client"] is None:
            self.runs["client"] = self._client.finish_client(self.number)
        self.runs["server"] = self._server.finish_server(self.number)

    def close(self) -> None:
        """End what runs."""
        self._client.close()
        self._server.close()


def at_once(plan: List[Dict[str, Any]], numbers: List[int]) -> List[Lane]:
    """Run these tests of the plan at the same time: all servers listen before the first client begins."""
    lanes = [Lane(plan, number) for number in numbers]
    try:
        for lane in lanes:
            lane.serve()
        for lane in lanes:
            lane.ask()
        for lane in lanes:
            lane.finish()
        return lanes
    finally:
        for lane in lanes:
            lane.close()


def both_ends(plan: List[Dict[str, Any]], repetitions: int) -> None:
    """The whole plan, so often: tests of one `step` at the same time; after one that failed no more of its group."""
    failed = set()
    steps: Dict[int, List[int]] = {}
    for number, test in enumerate(plan):
        steps.setdefault(test["step"], []).append(number)
    for _ in range(repetitions):
        for numbers in steps.values():
            for lane in at_once(plan, [number for number in numbers if plan[number]["group"] not in failed]):
                say(event="run", test=lane.number, addresses=[], gone="", **lane.runs)
                if has_failed(lane.runs["client"]) or has_failed(lane.runs["server"]):
                    failed.add(plan[lane.number]["group"])
