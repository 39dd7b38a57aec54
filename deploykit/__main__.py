"""`python -m deploykit` is `deploykit`."""

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; a signal that comes while it is being loaded waits until then."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    from deploykit.cli.main import main as command_line

    command_line()


if __name__ == "__main__":
    main()
