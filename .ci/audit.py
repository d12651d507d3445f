"""Asks the OSV database for known vulnerabilities of pinned packages: `python .ci/audit.py requirements/gateway.txt …`.

The first lock file is what is shipped: findings in it fail the build, unless `requirements/audit-ignore.txt` names them
(`ID  why it does not matter here`). Findings in the others are only shown. If the database cannot be reached, this says
so in one line and does not fail: a build must not depend on somebody else's server. `OSV_URL` names another server.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path

from lock import Package, read_lock

ROOT = Path(__file__).parent.parent
URL = "https://api.osv.dev/v1/querybatch"
SECONDS = 20.0
BATCH = 500


def find_vulnerabilities(packages: list[Package], url: str) -> dict[Package, list[str]]:
    """The ids of known vulnerabilities. Raises OSError or ValueError if the database gives no usable answer."""
    found: dict[Package, list[str]] = {}
    for start in range(0, len(packages), BATCH):
        batch = packages[start : start + BATCH]
        queries = [
            {"package": {"name": package.name, "ecosystem": "PyPI"}, "version": package.version} for package in batch
        ]
        body = json.dumps({"queries": queries}).encode()
        request = urllib.request.Request(url, body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            answer = json.load(response)
        results = answer.get("results") if isinstance(answer, dict) else None
        if not isinstance(results, list) or len(results) != len(batch):
            raise ValueError("its answer is not what was asked for")
        for package, result in zip(batch, results, strict=True):
            ids = [row["id"] for row in (result or {}).get("vulns", ())]
            if ids:
                found[package] = ids
    return found


def read_ignored(file: Path) -> set[str]:
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    return {line.split()[0] for line in lines if line.strip() and not line.startswith("#")}


def main(files: list[str]) -> int:
    url = os.environ.get("OSV_URL", URL)
    ignored = read_ignored(ROOT / "requirements" / "audit-ignore.txt")
    status = 0
    for number, file in enumerate(files):
        packages = read_lock(ROOT / file)
        try:
            found = find_vulnerabilities(packages, url)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = getattr(error, "reason", None) or error
            sys.stderr.write(f"audit: not done: the vulnerability database {url} cannot be asked: {reason}\n")
            return status
        for package, ids in found.items():
            for name in ids:
                what = "ignored" if name in ignored else "vulnerable" if number == 0 else "vulnerable, not shipped"
                sys.stdout.write(f"{file}: {package.name} {package.version}: {what}: https://osv.dev/{name}\n")
                status |= what == "vulnerable"
        sys.stdout.write(f"{file}: {len(packages)} packages asked about\n")
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
