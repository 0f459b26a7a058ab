"""The README: short, its code runs as it is written, and the files it names exist."""

import re

import jax
import numpy as np
import pytest

import pathgrad as pg

from .docs_helpers import README

TEXT = README.read_text()
(CODE,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def run(code):
    names: dict = {}
    exec(compile(code, str(README), "exec"), names)
    return names


def test_the_example_runs(capsys):
    assert "pg.fit(target)" in CODE
    short = "pg.fit(target, recipe=pg.Recipe(n=64, first=50, rounds=1, look_draws=1000))"
    names = run(CODE.replace("pg.fit(target)", short))
    assert names["draws"].shape == (1000, 2)
    assert isinstance(names["fit"], pg.TargetFit)
    assert names["fit"].history[-1].step == 50
    assert "verdict" in capsys.readouterr().out


@pytest.mark.slow
def test_the_example_ends_in_what_the_readme_says(capsys):
    names = run(CODE)
    printed = capsys.readouterr().out
    (shown,) = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    for line in shown.splitlines():
        assert f"{line.split('  ')[-2].strip()} " in printed  # the same rows
    (ess,) = re.findall(r"ESS  ([\d.]+)", printed)
    assert float(ess) > 99.9
    assert "verdict  good" in printed
    # Its normaliser by quadrature, and as the README quotes it.
    grid = np.stack(np.meshgrid(*[np.linspace(-8, 8, 401, dtype=np.float32)] * 2), -1).reshape(-1, 2)
    height = np.asarray(jax.vmap(names["log_prob"])(grid))
    exact = np.log(np.sum(np.exp(height.astype(float))) * 0.04**2)
    value, error = map(float, re.findall(r"log Z  (-?[\d.]+) ± ([\d.]+)", shown)[0])
    assert abs(value - exact) < 4 * error


def test_two_minutes_are_enough():
    before = TEXT.partition("```python")[0]
    assert len(re.findall(r"\w+", TEXT)) < 900
    assert len(re.findall(r"\w+", before)) < 120


def test_files_it_names_exist():
    links = re.findall(r"\]\(([^)#:]+)\)", TEXT)
    assert links
    assert [link for link in links if not (README.parent / link).exists()] == []
