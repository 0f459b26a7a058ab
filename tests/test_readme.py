"""Code in the README runs as it is written, with fewer steps, and the files it names exist."""

import re

import pathgrad as pg

from .docs_helpers import README


def test_the_example_runs():
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert "steps=500" in code
    names: dict = {}
    exec(compile(code.replace("steps=500", "steps=50"), str(README), "exec"), names)
    assert names["draws"].shape == (1000, 2)
    assert isinstance(names["fit"], pg.Fit)
    assert names["fit"].history[-1].step == 50


def test_files_it_names_exist():
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text())
    assert links
    assert [link for link in links if not (README.parent / link).exists()] == []
