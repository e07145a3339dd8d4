"""The process entry: answers --version before anything else is imported, so that it costs next to nothing."""

import gc
import signal
import sys

# what starts programs and waits for them needs these, and a shell cannot undo that it was started deaf to one
_NEEDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)


def main() -> None:
    """Run the command line; the exit status is the contract of docs/architecture.md."""
    if sys.argv[1:] == ["--version"]:
        from nodectl import __version__

        sys.stdout.write(f"nodectl {__version__}\n")
        return
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
