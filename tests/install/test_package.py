"""The wheel and the sdist hold what they should, and nothing else. `make package` installs them and tries them, too."""

from __future__ import annotations

import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def package() -> ModuleType:
    """`.ci/package.py`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / ".ci")
        import package

        return package


@pytest.fixture(scope="module")
def built(package: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    sdist, wheel = package.build(tmp_path_factory.mktemp("dist"))
    return sdist, wheel


def test_both_are_whole(package: ModuleType, built: tuple[Path, Path]) -> None:
    sdist, wheel = built
    assert [*package.check_wheel(wheel), *package.check_sdist(sdist)] == []


def rewrite(wheel: Path, folder: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """A copy of a wheel with changed files; None leaves one out."""
    copy = folder / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(copy, "w") as new:
        for name in old.namelist():
            data = change(name, old.read(name))
            if data is not None:
                new.writestr(name, data)
    return copy


@pytest.mark.parametrize(
    "name", ["toolwire/py.typed", "toolwire/gateway/settings/providers.toml", "toolwire/cli/__init__.py"]
)
def test_a_file_that_is_left_out_is_found(
    package: ModuleType, built: tuple[Path, Path], tmp_path: Path, name: str
) -> None:
    copy = rewrite(built[1], tmp_path, lambda entry, data: None if entry == name else data)
    assert f"{name} is missing" in list(package.check_wheel(copy))


def test_a_file_that_does_not_belong_there_is_found(
    package: ModuleType, built: tuple[Path, Path], tmp_path: Path
) -> None:
    copy = Path(shutil.copy(built[1], tmp_path))
    with zipfile.ZipFile(copy, "a") as wheel:
        wheel.writestr("tests/conftest.py", "")
    assert list(package.check_wheel(copy)) == ["tests/conftest.py does not belong there"]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (b"Requires-Dist: httptools", b"X-Nothing: httptools", "dependencies"),
        (b"Provides-Extra: gateway", b"X-Nothing: gateway", "other extras"),
        (b"Requires-Python: >=3.11", b"Requires-Python: >=3.9", "Requires-Python"),
        (b"text/markdown", b"text/plain", "description in Markdown"),
        (b"Project-URL: Issues", b"X-Nothing: Issues", "other addresses"),
        (b"[Security](https:", b"[Security](docs/security.md) (", "leads nowhere on a package index: docs/security.md"),
    ],
)
def test_wrong_metadata_is_found(
    package: ModuleType, built: tuple[Path, Path], tmp_path: Path, old: bytes, new: bytes, problem: str
) -> None:
    copy = rewrite(
        built[1], tmp_path, lambda name, data: data.replace(old, new, 1) if name.endswith("METADATA") else data
    )
    problems = list(package.check_wheel(copy))
    assert len(problems) == 1
    assert problem in problems[0]


def test_a_command_that_fails_is_told_with_what_it_prints(package: ModuleType) -> None:
    with pytest.raises(package.Failed, match="ended with 3:\nwhy"):
        package.run([sys.executable, "-c", "import sys; print('why'); sys.exit(3)"], ROOT)


def test_continuous_integration_builds_both() -> None:
    assert "package" in (ROOT / ".ci" / "run").read_text().split()


def test_a_command_that_takes_too_long_ends_with_its_children(package: ModuleType, tmp_path: Path) -> None:
    """The pipes of a child that lives on would keep the run waiting."""
    endless = f"import subprocess; subprocess.run([{sys.executable!r}, '-c', 'import signal; signal.pause()'])"
    with pytest.raises(package.Failed, match="took more than 1 s"):
        package.run([sys.executable, "-c", endless], tmp_path, seconds=1)
