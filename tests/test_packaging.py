"""What is built for users: the wheel is the package alone, and the source archive can be tested."""

import email
import re
import subprocess
import tarfile
import tomllib
import zipfile

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from .docs_helpers import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGE = ROOT / "src" / "pathgrad"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel; return its files by name."""
    [path] = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")))
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """Build the source archive; return its path."""
    [path] = SdistBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("sdist")))
    return path


def about(wheel, name):
    return wheel[f"pathgrad-{PROJECT['version']}.dist-info/{name}"].decode()


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel):
    files = [path.relative_to(ROOT / "src") for path in PACKAGE.rglob("*") if path.is_file()]
    wanted = {path.as_posix() for path in files if "__pycache__" not in path.parts}
    assert {name for name in wheel if ".dist-info/" not in name} == wanted
    # Without these, types, names, pages and reference values would be missing in silence.
    for name in ("py.typed", "__init__.pyi", "_show/page/style.css", "experiments/phi4/reference.csv"):
        assert f"pathgrad/{name}" in wanted
    assert sum(map(len, wheel.values())) < 2e6


def test_the_wheel_says_what_it_needs_and_offers(wheel):
    metadata = email.message_from_string(about(wheel, "METADATA"))
    assert metadata["Name"] == "pathgrad"
    assert metadata["Version"] == PROJECT["version"]
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert str(metadata.get_payload()).startswith("# pathgrad")
    needed = metadata.get_all("Requires-Dist", [])
    extras = PROJECT["optional-dependencies"]
    for name, packages in extras.items():
        assert len([line for line in needed if line.endswith(f"extra == '{name}'")]) == len(packages)
    assert len(needed) - sum(map(len, extras.values())) == len(PROJECT["dependencies"])
    points = about(wheel, "entry_points.txt")
    for line in ("[pathgrad.experiments]", "toy = pathgrad.experiments.toy.experiment:TOY"):
        assert line in points.splitlines()
    assert about(wheel, "licenses/LICENSE") == (ROOT / "LICENSE").read_text()


def test_the_source_archive_has_what_tests_need(sdist):
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert {"Makefile", "constraints.txt", "mkdocs.yml", "tests/helpers.py", "docs/index.md"} <= set(names)
    assert not [name for name in names if name.startswith((".venv/", "runs/", "site/"))]
    assert not [name for name in names if re.fullmatch(r"results/report/.*\.png", name)]
    tracked = subprocess.run(["git", "ls-files", "tests", "src"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode == 0:  # not in an unpacked source archive
        present = {name for name in tracked.stdout.split() if (ROOT / name).exists()}
        assert present <= set(names)
