"""`make release`: a dry run changes nothing, a real one commits and tags, and nothing is released that is not in order."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema

from waits import PATIENCE

ROOT = Path(__file__).parents[2]
COPIED = (
    ".ci", "src", "deploy", "requirements/serve.txt", "requirements/gateway.txt", "docs/guides/scale.md", "pyproject.toml",
    "README.md", "LICENSE", "CHANGELOG.md", ".gitignore",
)  # fmt: skip
VERSION = "9.8.7"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=T", "-c", "user.email=t@example.com", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project, in a repository of its own."""
    folder = tmp_path / "project"
    for name in COPIED:
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "node_modules", ".env"))
        else:
            shutil.copy(source, target)
    git(tmp_path, "init", "--quiet", "--initial-branch", "main", str(folder))
    for key, value in (("user.name", "T"), ("user.email", "t@example.com")):
        git(folder, "config", key, value)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "start")
    return folder


def release(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(project / ".ci" / "release.py"), *words]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=PATIENCE, check=False)


def check_files(project: Path) -> None:
    dist = project / "dist"
    sums = dict(line.split()[::-1] for line in (dist / "SHA256SUMS").read_text().splitlines())
    assert set(sums) == {f"toolwire-{VERSION}{end}" for end in ("-py3-none-any.whl", ".tar.gz", ".cdx.json")}
    assert all(hashlib.sha256((dist / name).read_bytes()).hexdigest() == sums[name] for name in sums)
    sbom = json.loads((dist / f"toolwire-{VERSION}.cdx.json").read_text())
    assert sbom["metadata"]["component"]["version"] == VERSION
    assert (dist / "NOTES.md").read_text().startswith("### ")


def test_a_dry_run_builds_and_changes_nothing(project: Path) -> None:
    head = git(project, "rev-parse", "HEAD")
    done = release(project, VERSION, "--no-install")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"dry run: this would be committed and tagged v{VERSION}:" in done.stdout
    assert "CHANGELOG.md" in done.stdout
    assert (git(project, "rev-parse", "HEAD"), git(project, "status", "--porcelain")) == (head, "")
    assert git(project, "tag") == ""
    check_files(project)


def test_a_real_one_commits_and_tags(project: Path) -> None:
    git(project, "remote", "add", "origin", "https://token@git.example.com/a-team/toolwire.git")
    done = release(project, VERSION, "--for-real", "--no-install")
    assert (done.returncode, done.stderr) == (0, "")
    assert git(project, "log", "-1", "--format=%s") == f"release: {VERSION}"
    assert git(project, "describe", "--exact-match") == f"v{VERSION}"
    assert git(project, "status", "--porcelain") == ""
    changes = (project / "CHANGELOG.md").read_text()
    assert f"\n## Unreleased\n\n## {VERSION} - 20" in changes
    for name in (
        "pyproject.toml",
        "src/toolwire/core/version.py",
        "deploy/compose/compose.yaml",
        "deploy/helm/toolwire/Chart.yaml",
        "docs/guides/scale.md",
    ):
        assert VERSION in (project / name).read_text(), name
    readme = (project / "README.md").read_text()
    assert "is enough: `uvx toolwire serve`." in readme
    assert "first release" not in readme
    urls = tomllib.loads((project / "pyproject.toml").read_text())["project"]["urls"]
    repository = urls["Repository"]
    assert repository == "https://git.example.com/a-team/toolwire"
    assert all(url.startswith(repository) for url in urls.values())
    with zipfile.ZipFile(project / "dist" / f"toolwire-{VERSION}-py3-none-any.whl") as wheel:
        shown = wheel.read(f"toolwire-{VERSION}.dist-info/METADATA").decode()
    assert f"({repository}/blob/v{VERSION}/docs/start/quickstart.md)" in shown
    assert f"({repository}/raw/v{VERSION}/docs/pictures/serve.svg)" in shown
    check_files(project)
    assert release(project, "--tag", f"v{VERSION}").returncode == 0
    wrong = release(project, "--tag", "v1.0.0")
    assert (wrong.returncode, wrong.stderr) == (
        1,
        f"error: the tag is v1.0.0, but pyproject.toml has version {VERSION}\n",
    )
    again = release(project, VERSION, "--no-install")
    assert f"error: the tag v{VERSION} exists already\n" in again.stderr
    assert "error: CHANGELOG.md has nothing under ## Unreleased" in again.stderr


@pytest.mark.parametrize(
    ("remote", "repository"),
    [
        ("https://git.example.com/a/b", "https://git.example.com/a/b"),
        ("https://me:token@git.example.com/a/b.git/", "https://git.example.com/a/b"),
        ("git@git.example.com:a/b.git", "https://git.example.com/a/b"),
        ("ssh://git@git.example.com:22/a/b.git", "https://git.example.com/a/b"),
        ("/srv/toolwire", None),
        ("../toolwire", None),
        ("", None),
    ],
)
def test_the_repository_is_named_by_its_own_address(
    remote: str, repository: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / ".ci")
    import release

    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    release.write_repository(tmp_path, remote)
    text = (tmp_path / "pyproject.toml").read_text()
    assert tomllib.loads(text)["project"]["urls"]["Repository"] == (repository or PROJECT["urls"]["Repository"])
    assert "token" not in str(tomllib.loads(text)["project"]["urls"])


def test_uvx_is_named_once_until_it_works() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert [page.name for page in pages for _ in range(page.read_text().count("uvx toolwire"))] == ["README.md"]


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("1.0", "is not a version"),
        ("v1.0.0", "is not a version"),
        ("0.0.1", "is older than"),
        ("0.0.1rc1", "is older than"),
    ],
)
def test_a_wrong_version_is_refused(project: Path, version: str, problem: str) -> None:
    done = release(project, version)
    assert done.returncode == 1
    assert problem in done.stderr


def test_changes_that_are_not_committed_are_refused(project: Path) -> None:
    (project / "stray.txt").write_text("")
    done = release(project, VERSION)
    assert (done.returncode, done.stderr) == (1, "error: the working tree has 1 changes: commit or remove them first\n")


# --- GitHub -----------------------------------------------------------------------------------------------------------

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(path: Path) -> Any:
    """With `on` as a word: YAML 1.1 takes it for true."""
    found = yaml.safe_load(path.read_text())
    return {"on" if key is True else key: value for key, value in found.items()}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_are_valid(path: Path) -> None:
    jsonschema.validate(read(path), get_builtin_schema("vendor.github-workflows"))


def test_the_schema_would_find_a_mistake() -> None:
    broken = read(WORKFLOWS[0])
    broken["jobs"]["build"] = {"runs-on": "ubuntu-24.04", "step": []}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, get_builtin_schema("vendor.github-workflows"))


def test_dependabot_is_valid() -> None:
    settings = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())
    jsonschema.validate(settings, get_builtin_schema("vendor.dependabot"))


def test_every_action_is_pinned_to_a_version() -> None:
    used = [
        step["uses"]
        for path in WORKFLOWS
        for job in read(path)["jobs"].values()
        for step in job["steps"]
        if "uses" in step
    ]
    assert len(used) > 10
    assert [name for name in used if name.partition("@")[2] in ("", "main", "master", "latest")] == []


def test_rights_are_given_job_by_job() -> None:
    for path in WORKFLOWS:
        assert read(path)["permissions"] == {"contents": "read"}, path.name
    jobs = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    assert jobs["pypi"]["permissions"] == {"id-token": "write"}
    assert jobs["pypi"]["environment"]["name"] == "pypi"
    assert not any("password" in step.get("with", {}) for step in jobs["pypi"]["steps"]), (
        "trusted publishing has no token"
    )


def test_every_supported_python_is_tested_on_every_system() -> None:
    matrix = read(ROOT / ".github" / "workflows" / "test.yml")["jobs"]["wheel"]["strategy"]["matrix"]
    assert matrix["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert [name.partition("-")[0] for name in matrix["os"]] == ["ubuntu", "macos", "windows"]
