"""The job that meets the events: data-parallel training over gloo, which saves all of its state every ten steps.

What it does beside that is asked for by words on its command line, and by files in /tmp/chaos of its host.
"""

from __future__ import annotations

import argparse
import mmap
import os
import shutil
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

ASKED = Path("/tmp/chaos")  # noqa: S108 - of a lab host
_EVERY = 10
_ENDING_S = 1.5
_BATCH = 8
_DAEMON = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


def say(text: str) -> None:
    """One write a line, so that no other rank's words come between."""
    os.write(1, f"{text}\n".encode())


def main() -> None:
    """Train until somebody asks for the end, or for so many steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--pause", type=float, default=0.1)
    parser.add_argument("--timeout", type=float, default=600.0, help="of a collective, in seconds")
    parser.add_argument("--deaf", action="store_true", help="SIGTERM is ignored")
    parser.add_argument("--daemon-first", action="store_true", help="a daemon is left before the first step")
    parser.add_argument("--flood-first", action="store_true", help="output is flooded before the first step")
    parser.add_argument("--daemon-last", action="store_true", help="a daemon is left when the job is stopped")
    parser.add_argument("--flood-last", action="store_true", help="output is flooded when the job is stopped")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if options.deaf else lambda *_: _end(options))
    segment = _segment()
    if options.daemon_first:
        leave_daemon()
    if options.flood_first:
        flood()
    try:
        _train(options)
    finally:
        segment.unlink(missing_ok=True)


def _end(options: argparse.Namespace) -> None:
    """Save before the end, as a program does."""
    say("ending")
    if options.daemon_last:
        leave_daemon()
    if options.flood_last:
        flood()
    until_s = time.monotonic() + _ENDING_S
    while time.monotonic() < until_s:
        if _asked("eat"):
            _eat()
        time.sleep(0.1)
    os._exit(0)


def _segment() -> Path:
    """Shared memory as torch names its own, mapped to the end."""
    job, rank = os.environ.get("NODECTL_JOB_ID", "alone"), os.environ["RANK"]
    path = Path(f"/dev/shm/torch_{job}_{rank}")  # noqa: S108 - shared memory is the point
    path.write_bytes(bytes(mmap.PAGESIZE))
    with path.open("r+b") as file:
        globals()["_kept"] = mmap.mmap(file.fileno(), mmap.PAGESIZE)
    return path


def leave_daemon() -> None:
    """Start a process in its own session, which no parent waits for and SIGTERM does not end."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-c", _DAEMON])  # noqa: S606 - no shell is wanted
        os._exit(0)
    os.wait()


def flood() -> None:
    """Twelve MiB of lines as fast as they go."""
    line = b"flood " + b"x" * 249 + b"\n"
    for _ in range(12 << 12):
        os.write(1, line)


def _asked(what: str) -> bool:
    """Somebody asks for it on this host; it is done once."""
    try:
        (ASKED / what).unlink()
    except OSError:
        return False
    return True


def _eat() -> None:
    kept = []
    while True:
        kept.append(bytearray(16 << 20))


def _train(options: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=options.timeout))
    rank, folder = dist.get_rank(), Path(os.environ["NODECTL_CHECKPOINT_DIR"])
    torch.manual_seed(7)
    weights = torch.randn(16, 1)
    speed = torch.zeros_like(weights)
    noise = torch.Generator().manual_seed(100)
    done = torch.zeros(1, dtype=torch.int64)
    found = sorted(folder.glob("step-*.pt"))
    if rank == 0 and found:
        kept = torch.load(found[-1])
        weights, speed, done = kept["weights"], kept["speed"], kept["done"]
        noise.set_state(kept["noise"])
    state = noise.get_state()
    for part in (weights, speed, done, state):
        dist.broadcast(part, src=0)
    noise.set_state(state)
    say(f"up at {int(done)}")
    last = torch.zeros(1)
    while done < options.steps and not last:
        batch = torch.randn(_BATCH * dist.get_world_size(), 16, generator=noise)[rank :: dist.get_world_size()]
        error = batch @ weights - batch.sum(dim=1, keepdim=True)
        gradient = batch.T @ error / _BATCH
        dist.all_reduce(gradient)
        speed = 0.9 * speed + gradient
        weights = weights - 0.01 * speed
        done += 1
        loss = (error**2).mean()
        dist.all_reduce(loss)
        last += float(_asked("finish"))
        dist.all_reduce(last)
        if rank == 0:
            say(f"step {int(done)} loss {float(loss).hex()}")
            if int(done) % _EVERY == 0:
                whole = {"weights": weights, "speed": speed, "done": done, "noise": noise.get_state()}
                torch.save(whole, "step.tmp")  # on the host's own disk, which may be full
                shutil.move("step.tmp", folder / "step.tmp")
                (folder / "step.tmp").replace(folder / f"step-{int(done):06}.pt")
                for old in sorted(folder.glob("step-*.pt"))[:-2]:
                    old.unlink()
        for what, act in {"eat": _eat, "flood": flood, "daemon": leave_daemon}.items():
            if _asked(what):
                act()
        time.sleep(options.pause)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
