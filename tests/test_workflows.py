"""What runs elsewhere (hooks, continuous integration, releases) agrees with the files that it repeats."""

import re
import tomllib

import pytest
import yaml

from .docs_helpers import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def read(path):
    return yaml.safe_load((ROOT / path).read_text())


def recipe(target):
    """Return the commands of a target of the Makefile, without the folder of the environment."""
    [lines] = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return [line.strip().removeprefix("$(BIN)/") for line in lines.splitlines()]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_are_complete(path):
    """Every job ends on its own, no secret is read, and targets of make exist."""
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets" not in path.read_text()
    for name, job in workflow["jobs"].items():
        if "uses" in job:
            assert (ROOT / job["uses"]).is_file()
            continue
        assert job["timeout-minutes"] <= 60, name
        for step in job["steps"]:
            for target in re.findall(r"\bmake ([\w-]+)", step.get("run", "")):
                assert recipe(target)


def test_python_versions_are_those_of_the_package():
    versions = read(".github/workflows/tests.yml")["jobs"]["tests"]["strategy"]["matrix"]["python"]
    lowest = PROJECT["requires-python"].removeprefix(">=")
    named = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert versions == named
    assert versions[0] == lowest


def test_a_release_publishes_what_the_tests_built():
    release, tests = (read(f".github/workflows/{name}.yml") for name in ("release", "tests"))
    publish = release["jobs"]["publish"]
    assert publish["needs"] == "tests"
    assert publish["permissions"] == {"id-token": "write"}
    built = [s["with"]["name"] for s in tests["jobs"]["wheel"]["steps"] if "upload" in s.get("uses", "")]
    assert [s["with"]["name"] for s in publish["steps"] if "download" in s["uses"]] == built
    # YAML reads the word `on` as true.
    assert "workflow_call" in tests[True]
    assert release[True] == {"push": {"tags": ["v*"]}}


def test_hooks_run_what_make_check_runs():
    repos = read(".pre-commit-config.yaml")["repos"]
    assert [repo["repo"] for repo in repos] == ["local"]
    commands = [hook["entry"] for hook in repos[0]["hooks"] if hook["entry"].startswith(".venv/bin/")]
    # Hooks get the names of files instead of the whole folder.
    plain = [c.removeprefix(".venv/bin/").replace(" --force-exclude", "") for c in commands]
    assert plain == [command.removesuffix(" .") for command in recipe("check")]


def test_the_version_is_the_same_everywhere():
    citation = read("CITATION.cff")
    assert citation["version"] == PROJECT["version"]
    newest, date = re.findall(r"^## (\S+) - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert newest == PROJECT["version"]
    assert str(citation["date-released"]) == date
