"""The SBOM names every pinned package, and the audit fails for what is known to be vulnerable, and only for that."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from waits import PATIENCE

ROOT = Path(__file__).parents[2]
GATEWAY, DEV = "requirements/gateway.txt", "requirements/dev.txt"
PACKAGES = dict(re.findall(r"^([a-z0-9][\w.-]*)==([^\s;\\]+)", (ROOT / GATEWAY).read_text(), re.MULTILINE))


def _run(script: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / ".ci" / script), *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")} | environ
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def test_the_sbom_names_every_pinned_package() -> None:
    made = _run("sbom.py", GATEWAY)
    assert made.returncode == 0, made.stderr
    sbom = json.loads(made.stdout)
    assert (sbom["bomFormat"], sbom["specVersion"], sbom["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", sbom["serialNumber"])
    assert {one["name"]: one["version"] for one in sbom["components"]} == PACKAGES
    assert len(PACKAGES) > 20
    for one in sbom["components"]:
        assert one["purl"] == one["bom-ref"] == f"pkg:pypi/{one['name']}@{one['version']}"
        assert one["externalReferences"][0]["hashes"]
    refs = {one["bom-ref"] for one in sbom["components"]} | {sbom["metadata"]["component"]["bom-ref"]}
    assert all({row["ref"], *row["dependsOn"]} <= refs for row in sbom["dependencies"])
    digests = re.findall(r"sha256:([0-9a-f]{64})", (ROOT / GATEWAY).read_text())
    assert sorted(re.findall(r'"content": "([0-9a-f]{64})"', made.stdout)) == sorted(digests)
    assert _run("sbom.py", GATEWAY).stdout == made.stdout, "the same lock gives the same bytes"


def test_a_lock_that_is_not_understood_is_an_error(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("-e git+https://example.com/x\n")
    assert _run("sbom.py", str(lock)).returncode


@contextmanager
def database(answer: Callable[[Any], tuple[int, bytes]]) -> Iterator[str]:
    """A vulnerability database on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, body = answer(asked)
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1/querybatch"
        finally:
            server.shutdown()
            thread.join()


def _answer_vulnerable(*vulnerable: str) -> Callable[[Any], tuple[int, bytes]]:
    def answer(asked: Any) -> tuple[int, bytes]:
        names = [query["package"]["name"] for query in asked["queries"]]
        assert all(query["package"]["ecosystem"] == "PyPI" and query["version"] for query in asked["queries"])
        rows = [{"vulns": [{"id": f"GHSA-{name}"}]} if name in vulnerable else {} for name in names]
        return 200, json.dumps({"results": rows}).encode()

    return answer


def test_the_audit_fails_for_what_is_shipped() -> None:
    with database(_answer_vulnerable("msgspec")) as url:
        done = _run("audit.py", GATEWAY, DEV, OSV_URL=url)
    assert done.returncode == 1
    assert "msgspec" in done.stdout
    assert "https://osv.dev/GHSA-msgspec" in done.stdout


def test_the_audit_only_shows_what_is_not_shipped() -> None:
    with database(_answer_vulnerable("pytest")) as url:
        done = _run("audit.py", GATEWAY, DEV, OSV_URL=url)
    assert done.returncode == 0
    assert "GHSA-pytest" in done.stdout


def test_the_audit_is_quiet_if_nothing_is_known() -> None:
    with database(_answer_vulnerable()) as url:
        done = _run("audit.py", GATEWAY, OSV_URL=url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{GATEWAY}: {len(PACKAGES)} packages asked about\n"


@pytest.mark.parametrize("answer", [(500, b""), (200, b"<html>"), (200, b"[]"), (200, b'{"results":[]}'), (200, b"{}")])
def test_a_database_that_gives_no_answer_fails_nothing_and_is_told_in_a_line(answer: tuple[int, bytes]) -> None:
    with database(lambda asked: answer) as url:
        done = _run("audit.py", GATEWAY, DEV, OSV_URL=url)
    assert done.returncode == 0
    assert done.stderr.startswith("audit: not done: ")
    assert done.stderr.count("\n") == 1


def test_a_database_that_is_not_there_fails_nothing_and_is_told_in_a_line() -> None:
    done = _run("audit.py", GATEWAY, OSV_URL="http://127.0.0.1:1/")
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1
    assert "cannot be asked" in done.stderr


def test_continuous_integration_runs_both() -> None:
    assert {"audit", "sbom"} <= set((ROOT / ".ci" / "run").read_text().split())


# --- the workflows ---

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_actions_are_pinned_by_commit_and_each_has_one_generation() -> None:
    text = "".join(path.read_text() for path in WORKFLOWS)
    used = re.findall(r"^\s*(?:- )?uses: (.+)$", text, re.MULTILINE)
    pins = [re.fullmatch(r"([\w./-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)", line) for line in used]
    assert len(used) > 15
    assert [line for line, pin in zip(used, pins, strict=True) if pin is None] == []
    commits = {(pin[1], pin[2], pin[3]) for pin in pins if pin is not None}
    assert len(commits) == len({name for name, _, _ in commits}) == len({commit for _, commit, _ in commits})
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")


def test_dependabot_watches_actions_packages_and_images() -> None:
    text = (ROOT / ".github" / "dependabot.yml").read_text()
    watched = re.findall(r"package-ecosystem: (\S+)\n\s+director(?:y|ies): (.+)", text)
    places = {kind: re.findall(r"/[\w/]*", where) for kind, where in watched}
    assert {"github-actions", "pip", "docker"} <= set(places)
    assert list((ROOT / places["pip"][0].strip("/")).glob("*.txt"))
    assert all((ROOT / place.strip("/")).is_dir() for kind in places.values() for place in kind)
