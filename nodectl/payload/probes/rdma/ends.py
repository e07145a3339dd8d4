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


class Ends:
    """What one end is asked to do, test by test."""

    def __init__(self, plan: List[Dict[str, Any]], address: str, port: int) -> None:
        self.plan, self.address, self.port = plan, address, port
        self._server: Optional[programs.Program] = None
        self._received: Optional[int] = None

    def close(self) -> None:
        """End the server that runs, if one does."""
        if self._server is not None:
            self._server.clear()

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
        """What became of it; it has ended then."""
        server, self._server = self._server, None
        if server is None:
            raise RuntimeError("no server was started for test %d" % number)
        server.wait(FINISH_S)
        return self._seen(server.outcome(), self.plan[number], "server")

    def client(self, number: int, address: str, port: int) -> Dict[str, Any]:
        """Run it to its end, or to its deadline."""
        test = self.plan[number]
        self._received = ports.packets(*test["client_port"])
        argv = [*test["client"], "-p", str(port)]
        try:
            client = programs.Program([*argv, address], test["client_cpus"], test["json"])
        except OSError as error:
            return programs.not_started([*argv, address], error)
        try:
            client.wait(test["deadline_s"])
            return self._seen(client.outcome(), test, "client")
        finally:
            client.clear()

    def _seen(self, run: Dict[str, Any], test: Dict[str, Any], role: str) -> Dict[str, Any]:
        """The run, with the state of its port and the packets that came meanwhile."""
        port = test["%s_port" % role]
        now = ports.packets(*port)
        received = None if now is None or self._received is None else now - self._received
        return {**run, "link": {**ports.state_of(*port), "received": received}}
