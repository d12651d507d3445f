"""`toolwire version`, `toolwire --version` and `toolwire -V`."""

from __future__ import annotations

import argparse
import sys

from toolwire import __version__


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There are none."""


def run(_: argparse.Namespace) -> int:
    sys.stdout.write(f"toolwire {__version__}\n")
    return 0
