"""`.ci/release` refuses a tag that is not the version of the package, and prepares what is published."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from swarmtui.version import __version__

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = "https://example.org/someone/swarmtui"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "swarmtui").mkdir()
    for name in ("pyproject.toml", "README.md", "swarmtui/version.py"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    sections = ("# Changelog", "## Unreleased", "- later", f"## {__version__} (2026-11-17)", "### Added\n- this")
    (tmp_path / "CHANGELOG.md").write_text("\n\n".join((*sections, "## 0.0.1", "- first\n")))
    return tmp_path


def release(tree: Path, tag: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / ".ci" / "release"), tag, "--root", str(tree), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_notes_are_the_section_of_the_version(tree: Path) -> None:
    ran = release(tree, f"v{__version__}", "--notes", str(tree / "notes"))
    assert ran.returncode == 0, ran
    assert (tree / "notes").read_text() == "### Added\n- this\n"


def test_another_tag_and_a_version_without_notes_are_refused(tree: Path) -> None:
    ran = release(tree, "v99.0")
    assert ran.returncode == 1 and f"not v{__version__}" in ran.stderr
    (tree / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n- later\n")
    ran = release(tree, f"v{__version__}")
    assert ran.returncode == 1 and "no text below" in ran.stderr


def test_package_index_gets_links_that_work_without_the_other_files(tree: Path) -> None:
    before = tomllib.loads((tree / "pyproject.toml").read_text())
    assert "urls" not in before["project"], "where the project is hosted is known only to its release"
    ran = release(tree, f"v{__version__}", "--repository", REPOSITORY)
    assert ran.returncode == 0, ran
    after = tomllib.loads((tree / "pyproject.toml").read_text())
    assert after["project"].pop("urls") == {
        "Source": REPOSITORY,
        "Issues": f"{REPOSITORY}/issues",
        "Changelog": f"{REPOSITORY}/blob/HEAD/CHANGELOG.md",
    }
    assert after == before
    readme = (tree / "README.md").read_text()
    assert f"]({REPOSITORY}/blob/v{__version__}/CHANGELOG.md)" in readme
    assert f"]({REPOSITORY}/raw/v{__version__}/screenshots/" in readme
    assert "](screenshots/" not in readme and "](workloads/" not in readme


def test_version_is_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"] and project["tool"]["hatch"]["version"]["path"] == (
        "swarmtui/version.py"
    )
    assert f'"{__version__}"' in (ROOT / "swarmtui" / "version.py").read_text()
