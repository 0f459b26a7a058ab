"""Code in the README and the documents runs as it is written (the README's with fewer steps)."""

import re
from pathlib import Path

import pytest

import pathgrad as pg

README = Path(__file__).parent.parent / "README.md"
DOCUMENTS = sorted((README.parent / "docs").glob("*.md"))


def test_the_example_runs():
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert "steps=500" in code
    names: dict = {}
    exec(compile(code.replace("steps=500", "steps=50"), str(README), "exec"), names)
    assert names["draws"].shape == (1000, 2)
    assert isinstance(names["fit"], pg.Fit)
    assert names["fit"].history[-1]["step"] == 50


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_the_documents_run(document):
    for code in re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL):
        names: dict = {}
        exec(compile(code, str(document), "exec"), names)
        if "fit" in names:
            assert names["fit"].history[-1]["ess"] > 0.9
        else:
            assert names["loss"] > 0  # minus the ELBO of black and white images


@pytest.mark.parametrize("document", [README, *DOCUMENTS], ids=lambda path: path.stem)
def test_files_they_name_exist(document):
    links = re.findall(r"\]\(([^)#:]+)\)", document.read_text())
    assert links
    missing = [link for link in links if not (document.parent / link).exists()]
    assert missing == []
