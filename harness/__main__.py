"""`python -m harness`: runs a workload on an engine, records it, and reports it.

Help is answered here, before Hydra or anything heavy is imported.
"""

import sys


def main(arguments: list[str]) -> int:
    """Run the command line; returns the exit code."""
    if any(argument in ("-h", "--help") for argument in arguments):
        from harness.help import main_help

        print(main_help())
        return 0
    from harness.app import run_command

    return run_command(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
