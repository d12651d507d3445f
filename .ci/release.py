"""Prepares a release: version, changes, build, checks, SBOM, checksums. It never uploads anything.

    python .ci/release.py [VERSION] [--for-real] [--no-install]
    python .ci/release.py --tag TAG        for what `make package` has built: check the tag, write SBOM and checksums

Without `--for-real` nothing changes except for dist/: the release is made in a clone that is thrown away, and this
prints what would be committed. With it, the commit and the tag are made here. Pushing the tag starts
.github/workflows/release.yml, which publishes. VERSION is that of pyproject.toml if it is left out.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from package import Failed

ROOT = Path(__file__).parent.parent
VERSION_PATTERN = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:rc\d+)?")
VERSION_PLACES = {
    "pyproject.toml": '\nversion = "{}"\n',
    "src/toolwire/core/version.py": '\nVERSION = "{}"\n',
    "deploy/compose/compose.yaml": "image: toolwire:{}\n",
    "deploy/single/compose.yaml": "image: toolwire:{}\n",
    "deploy/kubernetes/deployment.yaml": "image: toolwire:{}\n",
    "deploy/helm/toolwire/Chart.yaml": "\nversion: {0}\nappVersion: {0}\n",
    "docs/guides/scale.md": "--tag toolwire:{} ",
}
"""Where the version is written. (Reports of `make conformance` name the version that was measured.)"""
FIRST_RELEASE = {
    "README.md": (
        "After the first release, `uvx toolwire serve` will do the same without a clone.\n",
        "Without a clone, [uv](https://docs.astral.sh/uv/) is enough: `uvx toolwire serve`.\n",
    )
}
"""What is true from the first release on, and what is said until then."""
REMOTE = re.compile(r"(?:\w+://)?(?:[^@/]*@)?(?P<host>[\w.-]+\.\w+)(?::\d+)?[:/](?P<path>[\w./-]+?)(?:\.git)?/?")
"""The address of a repository as git writes it: https://HOST/PATH.git, git@HOST:PATH.git, ssh://git@HOST/PATH."""
CHANGES = "CHANGELOG.md"
UNRELEASED = "## Unreleased"
SUMS = "SHA256SUMS"


def git(*words: str, folder: Path = ROOT) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"`git {' '.join(words)}` failed: {done.stderr.strip()}")
    return done.stdout.strip()


def read_version(folder: Path = ROOT) -> str:
    return str(tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]["version"])


# --- checks -----------------------------------------------------------------------------------------------------------


def check_start(version: str) -> None:
    """Raises Failed with everything that stands in the way."""
    problems = []
    if not VERSION_PATTERN.fullmatch(version):
        problems.append(f"`{version}` is not a version such as 0.2.0 or 0.2.0rc1")
    elif _order(version) < _order(read_version()):
        problems.append(f"{version} is older than {read_version()}, the version in pyproject.toml")
    if dirty := git("status", "--porcelain"):
        problems.append(f"the working tree has {len(dirty.splitlines())} changes: commit or remove them first")
    if git("tag", "--list", f"v{version}"):
        problems.append(f"the tag v{version} exists already")
    if not unreleased_changes((ROOT / CHANGES).read_text("utf-8")):
        problems.append(f"{CHANGES} has nothing under {UNRELEASED}: say what users will notice")
    if problems:
        raise Failed("\n".join(problems))


def _order(version: str) -> tuple[int, ...]:
    numbers, _, candidate = version.partition("rc")
    return (*map(int, numbers.split(".")), int(candidate) if candidate else 10_000)


def check_tag(tag: str) -> None:
    version = read_version()
    if tag != f"v{version}":
        raise Failed(f"the tag is {tag}, but pyproject.toml has version {version}")
    if f"\n## {version} - " not in (ROOT / CHANGES).read_text("utf-8"):
        raise Failed(f"{CHANGES} has no section for {version}")


# --- changes ----------------------------------------------------------------------------------------------------------


def unreleased_changes(text: str) -> str:
    """The lines under Unreleased, without headings that have no lines."""
    section = text.partition(f"\n{UNRELEASED}\n")[2]
    return re.split(r"^## ", section, maxsplit=1, flags=re.MULTILINE)[0].strip()


def write_changes(text: str, version: str, date: str) -> str:
    """Changes with the unreleased ones as those of the version."""
    return text.replace(f"\n{UNRELEASED}\n", f"\n{UNRELEASED}\n\n## {version} - {date}\n", 1)


def write_version(folder: Path, version: str, date: str) -> None:
    old = read_version(folder)
    for name, pattern in VERSION_PLACES.items():
        path = folder / name
        text = path.read_text("utf-8")
        if pattern.format(old) not in text:
            raise Failed(f"{name} does not name the version {old} as `{pattern.format(old).strip()}`")
        path.write_text(text.replace(pattern.format(old), pattern.format(version)), "utf-8")
    for name, (before, after) in FIRST_RELEASE.items():
        path = folder / name
        text = path.read_text("utf-8")
        if before not in text and after not in text:
            raise Failed(f"{name} does not say `{before.strip()}`")
        path.write_text(text.replace(before, after), "utf-8")
    path = folder / CHANGES
    path.write_text(write_changes(path.read_text("utf-8"), version, date), "utf-8")


def write_repository(folder: Path, remote: str) -> None:
    """Name the repository that the release is made in; one without an address keeps what pyproject.toml has."""
    address = REMOTE.fullmatch(remote)
    if address is None:
        return
    path = folder / "pyproject.toml"
    text = path.read_text("utf-8")
    old = tomllib.loads(text)["project"]["urls"]["Repository"]
    path.write_text(text.replace(f'"{old}', f'"https://{address["host"]}/{address["path"]}'), "utf-8")


def find_remote() -> str:
    return git("remote", "get-url", "origin") if "origin" in git("remote").split() else ""


# --- the release ------------------------------------------------------------------------------------------------------


def build_packages(clone: Path, installs: bool) -> None:
    command = [sys.executable, ".ci/package.py", str(clone / "dist"), *([] if installs else ["--no-install"])]
    if subprocess.run(command, cwd=clone, check=False).returncode:
        raise Failed("the packages are not in order: see above")


def write_extras(folder: Path, version: str) -> list[Path]:
    """Write SBOM, notes and checksums beside the packages in dist/; gives all files of the release."""
    dist = folder / "dist"
    sbom = [sys.executable, ".ci/sbom.py", "requirements/gateway.txt"]
    written = subprocess.run(sbom, cwd=folder, capture_output=True, text=True, check=True).stdout
    (dist / f"toolwire-{version}.cdx.json").write_text(written, "utf-8")
    changes = (folder / CHANGES).read_text("utf-8").partition(f"\n## {version} - ")[2]
    notes = re.split(r"^## ", changes, maxsplit=1, flags=re.MULTILINE)[0].partition("\n")[2]
    (dist / "NOTES.md").write_text(notes.strip() + "\n", "utf-8")
    names = [f"toolwire-{version}-py3-none-any.whl", f"toolwire-{version}.tar.gz", f"toolwire-{version}.cdx.json"]
    if missing := [name for name in names if not (dist / name).exists()]:
        raise Failed(f"dist/ lacks {', '.join(missing)}: run `make package` first")
    sums = [f"{hashlib.sha256((dist / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (dist / SUMS).write_text("".join(sums), "utf-8")
    return [dist / name for name in (*names, SUMS, "NOTES.md")]


def commit_release(clone: Path, version: str) -> None:
    author = {key: git("config", "--default", "", f"user.{key}") or f"release-{key}" for key in ("name", "email")}
    options = [word for key, value in author.items() for word in ("-c", f"user.{key}={value}")]
    git("add", "--all", folder=clone)
    git(*options, "commit", "--quiet", "--message", f"release: {version}", folder=clone)


def release(version: str, for_real: bool, installs: bool) -> None:
    check_start(version)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()  # noqa: TID251 — the day of the release
    with tempfile.TemporaryDirectory(prefix="toolwire-release-") as scratch:
        clone = Path(scratch) / "toolwire"
        git("clone", "--quiet", "--no-local", str(ROOT), str(clone))
        write_version(clone, version, date)
        write_repository(clone, find_remote())
        commit_release(clone, version)
        build_packages(clone, installs)
        files = write_extras(clone, version)
        if for_real:
            for key in ("name", "email"):
                git("config", f"user.{key}")  # a release has an author
            git("fetch", "--quiet", str(clone), "HEAD")
            git("merge", "--quiet", "--ff-only", "FETCH_HEAD")
            git("tag", "--annotate", f"v{version}", "--message", f"Toolwire {version}")
        changed = git("show", "--stat", "--format=", "HEAD", folder=clone)
        (ROOT / "dist").mkdir(exist_ok=True)
        for file in files:
            shutil.copy(file, ROOT / "dist")
    sys.stdout.write("".join(f"dist/{file.name}\n" for file in files))
    if for_real:
        sys.stdout.write(f"committed and tagged v{version}; publish it with: git push origin HEAD v{version}\n")
    else:
        sys.stdout.write(f"dry run: this would be committed and tagged v{version}:\n{changed}\n")
        sys.stdout.write(f"do it with: make release VERSION={version} PUBLISH=1\n")


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="release.py", description="Prepare a release.")
    parser.add_argument("version", nargs="?", default="")
    parser.add_argument("--for-real", action="store_true", help="commit and tag; nothing is uploaded")
    parser.add_argument("--no-install", action="store_true", help="do not try the packages in clean environments")
    parser.add_argument("--tag", default="", help="the tag of what is checked out")
    args = parser.parse_args(words)
    try:
        if args.tag:
            check_tag(args.tag)
            write_extras(ROOT, read_version())
        else:
            release(args.version or read_version(), args.for_real, not args.no_install)
    except Failed as error:
        sys.stderr.write("".join(f"error: {line}\n" for line in str(error).splitlines()))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
