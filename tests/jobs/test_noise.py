"""What torch prints as an error where nothing is wrong is not shown; what is an error is."""

from nodectl.jobs.noise import Noise

AT = "E1124 21:44:03.878000 25726 torch/distributed/elastic/agent/server/api.py:1008]"
LINES = f"""\
[W1124 socket.cpp:207] [c10d] The hostname of the client socket cannot be retrieved. err=-3
step 1
{AT} Error waiting on exit barrier. Elapsed: 1.2 seconds
{AT} Traceback (most recent call last):
{AT} RuntimeError: Connection reset by peer
E1124 21:44:04.000000 25726 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1)
{AT} RuntimeError: of another record
Traceback (most recent call last):
[W1124 socket.cpp:207] [c10d] The client socket has failed to connect to node01. err=-3"""


def test_only_what_is_no_error_is_held_back() -> None:
    noise = Noise()
    shown = [line for line in LINES.splitlines() if not noise.holds("node01 None", line)]
    assert [line[:24] for line in shown] == [
        *("step 1", "E1124 21:44:04.000000 25", "E1124 21:44:03.878000 25", "Traceback (most recent c"),
        "[W1124 socket.cpp:207] [",
    ]


def test_each_host_has_records_of_its_own() -> None:
    noise = Noise()
    assert noise.holds("a", f"{AT} Error waiting on exit barrier. Elapsed: 1 seconds")
    assert not noise.holds("b", f"{AT} RuntimeError: Connection reset by peer")
    assert noise.holds("a", f"{AT} RuntimeError: Connection reset by peer")
