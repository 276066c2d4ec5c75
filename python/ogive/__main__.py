# SPDX-License-Identifier: MIT
"""The ogive command: `python -m ogive`, and `ogive` where the package is installed."""

from __future__ import annotations

import os
import pathlib
import sys


def main() -> None:
    command = pathlib.Path(__file__).parent / "bin" / "ogive"
    if not command.exists():
        sys.exit("error: this package was built without the command, since jansson was not there "
                 "(Debian, Ubuntu: apt-get install libjansson-dev, then pip install again)")
    os.execv(command, ["ogive", *sys.argv[1:]])


if __name__ == "__main__":
    main()
