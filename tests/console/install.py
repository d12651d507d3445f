"""A Chromium for the tests of the console: the system's own. Where there is none, Debian's package is installed, if that is
possible without asking anybody.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = "Chromium is not here and cannot be installed: the tests of the console in a browser are left out"


def find_chromium() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def install_chromium() -> None:
    """Debian's package, as root, where that works."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        return
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    sys.stderr.write("Installing Chromium, once …\n")
    for command in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
        done = subprocess.run([apt, "--quiet=2", *command], env=environ, capture_output=True, check=False)
        if done.returncode:
            return


if __name__ == "__main__":
    if find_chromium() is None:
        install_chromium()  # where it fails, the tests say that they are left out
