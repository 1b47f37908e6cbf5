"""`penstock aggregate` in a process of its own, which kills itself or pauses at a given point.

    python -m tests.crash.program --kill after_commit:1 -- --once --landing ... --store ...

What stands after -- is for the command, and nothing but the points is different from it.
"""

import argparse
import resource
import sys
from pathlib import Path

from penstock.cli.main import main
from penstock.spark import lease
from tests.crash.points import POINTS, die, install, pause_at


def run() -> int:
    """Install what is asked for, and run the command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kill", help=f"POINT:BATCH, a point of {', '.join(POINTS)}")
    parser.add_argument("--pause", help="as --kill, but stand still while the sign is there")
    parser.add_argument("--sign", type=Path, help="the file that is made for a pause")
    parser.add_argument("--largest-file", type=int, help="bytes; no file can grow beyond")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--lease", type=float, help="seconds that a lease is good for")
    parser.add_argument("rest", nargs="+")
    options = parser.parse_args()
    if options.lease:
        lease.LEASE_SECONDS = options.lease
    if options.largest_file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (options.largest_file, resource.RLIM_INFINITY))
    for place, act in ((options.kill, die), (options.pause, pause_at(options.sign))):
        if place:
            point, _, batch = place.partition(":")
            install(point, int(batch), options.checkpoint, act)
    return main(["aggregate", "--checkpoint", str(options.checkpoint), *options.rest])


if __name__ == "__main__":
    sys.exit(run())
