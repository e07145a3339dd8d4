"""The process entry: answers --version before anything else is imported, so that it costs next to nothing."""

import gc
import os
import signal
import sys

# what starts programs and waits for them needs these, and a shell cannot undo that it was started deaf to one
_NEEDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)


def _open_streams() -> None:
    """Open /dev/null for each standard stream that the shell closed (`>&-`).

    Otherwise the next file to be opened takes the stream's number, and a database would be given what is printed.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def main() -> None:
    """Run the command line; the exit status is the contract of docs/architecture.md."""
    if sys.argv[1:] == ["--version"]:
        from nodectl import __version__

        sys.stdout.write(f"nodectl {__version__}\n")
        return
    _open_streams()
    # imports make many objects that stay: looking for cycles among them took a fifth of the start
    gc.set_threshold(100_000, 20, 20)
    for number in _NEEDED:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    try:
        from nodectl.cli.root import run

        run()
    except KeyboardInterrupt:  # while modules were still being imported
        sys.exit(130)


if __name__ == "__main__":
    main()
