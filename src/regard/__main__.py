"""`python -m regard` is `regard`."""

import signal
import sys


def main() -> int:
    """Run one command of the command line; Ctrl-C ends it without a traceback also while Python starts or ends."""
    # A shell may have told a job in the background to ignore Ctrl-C.
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heard:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from regard.cli.main import main as run

    try:
        if heard:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = run()
        if heard:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:  # a second one, while the first was reported
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        code = 130
    return code


if __name__ == "__main__":
    sys.exit(main())
