"""One host's side of the tests: perftest's server, or its client, one at a time."""

import time
from typing import Any, Dict, List, Optional

from ...common.sockets import LISTEN
from ..tcp import port_states, reserve
from . import ports, programs

LISTEN_S = 15.0
# what a server may take to end after its client has
FINISH_S = 4.0
ATTEMPTS = 3
BUSY = "Couldn't listen to port"


def has_failed(run: Optional[Dict[str, Any]]) -> bool:
    """It was not started, was ended, or ended with an error."""
    return run is None or bool(run["status"]) or run["timed_out"]


class Ends:
    """What one end is asked to do, test by test."""

    def __init__(self, plan: List[Dict[str, Any]], address: str, port: int) -> None:
        self.plan, self.address, self.port = plan, address, port
        self._server: Optional[programs.Program] = None
        self._client: Optional[programs.Program] = None
        self._received: Optional[int] = None
        self._until = 0.0

    def close(self) -> None:
        """End what runs, if anything does."""
        for running in (self._client, self._server):
            if running is not None:
                running.clear()

    def start_server(self, number: int) -> Dict[str, Any]:
        """{"port"} where it listens, {"run"} where it ended instead."""
        test = self.plan[number]
        self._received = ports.packets(*test["server_port"])
        for attempt in range(ATTEMPTS):
            port = self.port or reserve(self.address, 0)
            argv = [*test["server"], "-p", str(port)]
            try:
                server = programs.Program(argv, test["server_cpus"], False)
            except OSError as error:
                return {"run": programs.not_started(argv, error)}
            until = time.monotonic() + LISTEN_S
            while LISTEN not in port_states(port) and server.running() and time.monotonic() < until:
                time.sleep(programs.POLL_S)
            if server.running():
                self._server = server
                return {"port": port}
            run = server.outcome()
            if BUSY not in run["stderr"] + run["stdout"] or attempt + 1 == ATTEMPTS:
                break
            time.sleep(0.5)
        return {"run": self._seen(run, test, "server")}

    def finish_server(self, number: int) -> Dict[str, Any]:
        """Return what became of it; it has ended then."""
        server, self._server = self._server, None
        if server is None:
            raise RuntimeError("no server was started for test %d" % number)
        server.wait(FINISH_S)
        return self._seen(server.outcome(), self.plan[number], "server")

    def client(self, number: int, address: str, port: int) -> Dict[str, Any]:
        """Run it to its end, or to its deadline."""
        return self.start_client(number, address, port) or self.finish_client(number)

    def start_client(self, number: int, address: str, port: int) -> Optional[Dict[str, Any]]:
        """Return None where it runs; what became of it where it could not be started."""
        test = self.plan[number]
        self._received = ports.packets(*test["client_port"])
        argv = [*test["client"], "-p", str(port), address]
        try:
            self._client = programs.Program(argv, test["client_cpus"], test["json"])
        except OSError as error:
            return programs.not_started(argv, error)
        self._until = time.monotonic() + test["deadline_s"]
        return None

    def finish_client(self, number: int) -> Dict[str, Any]:
        """Return what became of it; it has ended then, by itself or at its deadline."""
        client = self._client
        if client is None:
            raise RuntimeError("no client was started for test %d" % number)
        try:
            client.wait(self._until - time.monotonic())
            return self._seen(client.outcome(), self.plan[number], "client")
        finally:
            client.clear()
            self._client = None

    def _seen(self, run: Dict[str, Any], test: Dict[str, Any], role: str) -> Dict[str, Any]:
        """The run, with the state of its port and the packets that came meanwhile."""
        port = test["%s_port" % role]
        now = ports.packets(*port)
        received = None if now is None or self._received is None else now - self._received
        return {**run, "link": {**ports.state_of(*port), "received": received}}
