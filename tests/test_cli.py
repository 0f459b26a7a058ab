"""The command line as a newcomer, a careless one, and a killer of processes would use it."""

import json
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from pathgrad._cli.main import main
from pathgrad._numbers.verdict import read_verdict
from pathgrad._words.errors import as_options
from pathgrad.experiments.toy.experiment import TOY
from pathgrad.experiments.toy.targets import TARGETS

from .helpers import has_marks

TINY = [
    "--width", "8", "--depth", "1", "--solver-steps", "3", "--batch", "16", "--steps", "40", "--block", "10",
]  # fmt: skip

DENSITIES = """
from __future__ import annotations
import dataclasses
import jax.numpy as jnp

LIST = [1, 2]

@dataclasses.dataclass
class Center:
    value: float = 1.0

def good(x):
    return -0.5 * jnp.sum((x - 1.0) ** 2) + jnp.tanh(x[0])

def nan(x):
    return jnp.log(x[0])

def vector(x):
    return -x**2

def integer(x):
    return 3

def fixed_size(x):
    return -jnp.vdot(x, jnp.arange(5.0))

def raises(x):
    raise KeyError("mu")
"""


@pytest.fixture(scope="module")
def densities(tmp_path_factory):
    path = tmp_path_factory.mktemp("densities") / "mine.py"
    path.write_text(DENSITIES)
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two runs that differ in their seed, trained once for all tests of this file."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in ("0", "1"):
        out = str(folder / f"seed{seed}")
        assert main(["train", "toy", "--target", "ring", *TINY, "--seed", seed, "--out", out]) == 0
    return folder


def refused(capsys, *words):
    """Run a command that must be refused; return its one line."""
    try:
        code = main(list(words))
    except SystemExit as stop:  # tyro's way
        code = stop.code
    err = capsys.readouterr().err
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    assert not has_marks(err)
    return err


def test_help_names_every_command_and_is_quick():
    began = time.perf_counter()
    shown = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "pathgrad", "--help"], capture_output=True, text=True
    )
    seconds = time.perf_counter() - began
    assert shown.returncode == 0
    for command in ("train toy", "train density", "fit", "evaluate", "sample", "compare", "demo"):
        assert f"\n  {command}" in shown.stdout
    # What makes it quick, and does not depend on how busy the machine is:
    assert not any(f" {heavy}\n" in shown.stderr for heavy in ("jax", "matplotlib", "tyro", "scipy"))
    assert seconds < 5


@pytest.mark.parametrize("command", ["train toy", "train density", "fit", "sample", "compare", "demo"])
def test_every_option_is_explained(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert f"usage: pathgrad {'train ' if command == 'fit' else ''}{command}" in text
    if command in ("train toy", "train density"):
        assert "--estimator {path,total,two-copy}" in text
        assert "(default: 1000)" in text


def test_the_options_of_an_evaluation_are_those_of_the_run(capsys, trained):
    assert main(["evaluate", "--help"]) == 0
    everything = capsys.readouterr().out
    assert "--nll-images" in everything
    assert "--samples" in everything
    with pytest.raises(SystemExit):
        main(["evaluate", str(trained / "seed0"), "--help"])
    own = capsys.readouterr().out
    assert "(default: 65536)" in own
    assert "--nll-images" not in own
    assert "--nll-images" in refused(capsys, "evaluate", str(trained / "seed0"), "--nll-images", "3")


def test_presets_change_the_defaults_that_help_shows(capsys):
    with pytest.raises(SystemExit):
        main(["train", "toy", "--preset", "accurate", "--help"])
    steps = TOY.defaults(preset="accurate").training.steps
    assert f"(default: {steps})" in capsys.readouterr().out


def test_unknown_words_get_a_hint(capsys, tmp_path):
    assert "Did you mean 'evaluate'?" in refused(capsys, "evalute", "x")
    assert "Did you mean 'toy'?" in refused(capsys, "train", "tpy")
    assert "toy" in refused(capsys, "train").partition("Choose from: ")[2]
    assert "--estimator" in refused(capsys, "train", "toy", "--estimater", "path")
    assert "banana" in refused(capsys, "train", "toy", "--target", "bananna")


BAD_INPUT = {
    "negative width": (["train", "toy", "--width", "-3"], "--width must be at least 1"),
    "no steps": (["train", "toy", "--steps", "0"], "--steps must be at least 1"),
    "negative rate": (["train", "toy", "--learning-rate", "-1"], "--learning-rate must be a positive"),
    "no number": (["train", "toy", "--learning-rate", "nan"], "--learning-rate must be a positive"),
    "no time": (["train", "toy", "--max-seconds", "0"], "--max-seconds must be a positive"),
    "small clip": (["train", "toy", "--clip", "0.5"], "--clip must be 0 or greater than 1"),
    "huge seed": (["train", "toy", "--seed", "99999999999999999999"], "--seed must be from 0"),
    "no batch": (["train", "toy", "--batch", "0"], "--batch must be at least 1"),
    "wrong dimension": (["train", "toy", "--target", "banana", "--dim", "3"], "dim"),
    "too deep": (["train", "toy", "--depth", "3"], "--divergence exact or hutchinson"),
    "no such run": (["evaluate", "nowhere"], "nowhere"),
    "not a run": (["evaluate", "."], "config.toml"),
    "wrong ending": (["sample", "nowhere", "--out", "x.txt"], ".npz"),
    "resume nothing": (["train", "toy", "--resume"], "--resume needs --out"),
    "resume nowhere": (["train", "toy", "--resume", "--out", "nowhere"], "nowhere"),
    "missing config": (["train", "toy", "--config", "none.toml"], "none.toml cannot be read"),
    "no runs": (["compare"], "at least one run"),
    "no colon": (["fit", "mine", "--dim", "2"], "MODULE:FUNCTION"),
    "no module": (["fit", "no_such_module:f", "--dim", "2"], "no_such_module"),
    "no file": (["fit", "none.py:f", "--dim", "2"], "none.py"),
    "no file, own flow": (["train", "density", "none.py:f", "--dim", "2"], "none.py"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_line_and_exit_code_two(case, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words, text = BAD_INPUT[case]
    assert text in refused(capsys, *words)
    assert not list(tmp_path.glob("runs/*/metrics.jsonl"))


BAD_DENSITIES = {
    "nothing": "has no function 'nothing'",
    "LIST": "has no function 'LIST'",
    "nan": "NaN or infinite at",
    "vector": "must be a scalar, got shape (2,)",
    "integer": "must",
    "fixed_size": "failed on one point of 2 coordinates",
    "raises": "KeyError",
}


@pytest.mark.parametrize("name", BAD_DENSITIES)
def test_bad_densities_are_named(name, capsys, densities, tmp_path):
    out = str(tmp_path / "run")
    said = refused(capsys, "train", "density", f"{densities}:{name}", "--dim", "2", "--out", out)
    assert BAD_DENSITIES[name] in said
    if name != "nan":  # which a warm start has more to say about
        assert BAD_DENSITIES[name] in refused(
            capsys, "fit", f"{densities}:{name}", "--dim", "2", "--out", out
        )
    assert not (tmp_path / "run").exists()


def test_a_run_keeps_its_configuration_and_metrics(trained):
    run = trained / "seed0"
    config = tomllib.loads((run / "config.toml").read_text())
    assert config["experiment"] == "toy"
    assert config["options"]["target"] == "ring"
    assert config["options"]["flow"]["width"] == 8
    assert config["options"]["flow"]["tolerance"] == 1e-5  # defaults are written too
    assert config["provenance"]["jax"]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [10, 20, 30, 40]
    for name in ("seconds", "loss", "ess", "gradient_norm", "evaluations"):
        assert name in rows[-1]
    assert rows[-1]["loss"] < rows[0]["loss"]


def test_evaluate_prints_json_last_and_keeps_it(trained, capsys):
    assert main(["evaluate", str(trained / "seed0"), "--samples", "3000"]) == 0
    out = capsys.readouterr().out
    result = json.loads(out.strip().splitlines()[-1])
    for name in ("samples", "ess", "kl", "log_z", "log_z_err", "khat", "solver_shift"):
        assert name in result
    assert result["samples"] == 3000
    assert result["log_z_known"] == float(TARGETS["ring"](2).log_z)
    assert result["log_z_known_err"] == 0
    # Loose, because the flow is bad; the weights know their error.
    assert abs(result["log_z"] - result["log_z_known"]) < 5 * result["log_z_err"] + 0.05
    assert 0 < result["ess"] < 1
    assert result["kl"] > 0
    # The file has names; the table ends in a sentence made from them.
    verdict = read_verdict(result)
    assert result["verdict"] == verdict.to_json()
    assert result["warnings"] == verdict.explain(result)
    assert result["experiment"] == "toy"
    last = out.splitlines()[-2].strip()
    assert last == f"verdict  {verdict.sentence(result, as_options)}"
    assert last.split()[1].rstrip(":,") == result["verdict"]["level"]
    assert json.loads((trained / "seed0" / "evaluation.json").read_text()) == result
    assert (trained / "seed0" / "evaluation.png").read_bytes()[:4] == b"\x89PNG"


def test_sample_writes_weighted_draws(trained, tmp_path, capsys):
    out = tmp_path / "draws.npz"
    words = ["sample", str(trained / "seed0"), "--n", "500", "--out", str(out)]
    assert main(words) == 0
    with np.load(out) as draws:
        assert draws["x"].shape == (500, 2)
        target = TARGETS["ring"](2)
        log_p = np.array([target.log_prob(jnp.asarray(x)) for x in draws["x"][:5]])
        np.testing.assert_allclose(log_p - draws["log_q"][:5], draws["log_weight"][:5], rtol=1e-5)
    assert "exists" in refused(capsys, *words)
    assert "--n must be at least 1" in refused(capsys, *words, "--overwrite", "--n", "0")
    assert main([*words, "--overwrite"]) == 0
    evaluate = ["evaluate", str(trained / "seed0"), "--samples", "0"]
    assert "--samples must be at least 1" in refused(capsys, *evaluate)


def test_compare_puts_runs_side_by_side(trained, tmp_path, capsys):
    plot = tmp_path / "compare.png"
    runs = [str(trained / "seed0"), str(trained / "seed1")]
    assert main(["compare", *runs, "--plot", str(plot)]) == 0
    out = capsys.readouterr().out
    assert "seed0" in out
    assert "mean of 2 seeds" in out
    assert plot.read_bytes()[:4] == b"\x89PNG"
    assert "png" in refused(capsys, "compare", *runs, "--plot", "x.doc")


def test_a_run_is_never_overwritten_without_being_asked(trained, capsys):
    out = str(trained / "seed0")
    before = (trained / "seed0" / "metrics.jsonl").read_bytes()
    said = refused(capsys, "train", "toy", "--target", "ring", *TINY, "--out", out)
    assert "--overwrite" in said
    assert "--resume" in said
    assert (trained / "seed0" / "metrics.jsonl").read_bytes() == before


def test_a_resumed_run_keeps_its_configuration(trained, capsys):
    said = refused(capsys, "train", "toy", "--out", str(trained / "seed0"), "--resume", "--width", "9")
    assert "--width 8 -> 9" in said


def test_a_finished_run_has_nothing_to_resume_and_can_be_prolonged(trained, capsys, tmp_path):
    out = str(trained / "seed1")
    assert main(["train", "toy", "--out", out, "--resume"]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert main(["evaluate", out, "--samples", "200"]) == 0
    capsys.readouterr()
    assert main(["compare", out]) == 0
    assert " %*" not in capsys.readouterr().out
    assert main(["train", "toy", "--out", out, "--resume", "--steps", "55"]) == 0
    rows = (trained / "seed1" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [10, 20, 30, 40, 50, 55]
    config = tomllib.loads((trained / "seed1" / "config.toml").read_text())
    assert config["options"]["training"]["steps"] == 55
    # The evaluation is of an earlier step now, and not shown as that of this one.
    capsys.readouterr()
    assert main(["compare", out]) == 0
    assert " %*" in capsys.readouterr().out


def test_options_come_from_a_file_and_are_clipped_and_timed(trained, tmp_path, capsys):
    out = tmp_path / "again"
    words = ["train", "toy", "--config", str(trained / "seed0" / "config.toml"), "--out", str(out)]
    words += ["--clip", "3", "--max-seconds", "0.001"]
    assert main(words) == 0
    options = tomllib.loads((out / "config.toml").read_text())["options"]
    assert (options["target"], options["flow"]["width"], options["training"]["clip"]) == ("ring", 8, 3)
    rows = (out / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [10]  # stopped after the first block
    assert main([*words, "--overwrite", "--seed", "5"]) == 0
    assert tomllib.loads((out / "config.toml").read_text())["options"]["training"]["seed"] == 5
    capsys.readouterr()
    assert main(["train", "toy", "--out", str(out), "--resume"]) == 0
    assert "at step 10: its --max-seconds are used up" in capsys.readouterr().out
    unknown = tmp_path / "unknown.toml"
    unknown.write_text('experiment = "toy"\n[options.flow]\nwidht = 3\n')
    assert "unknown names widht" in refused(capsys, "train", "toy", "--config", str(unknown))
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "config.toml").write_text("port = 80\n")
    said = refused(capsys, "train", "toy", "--out", str(foreign), "--overwrite")
    assert "was not written by pathgrad" in said


@pytest.mark.slow
def test_demo_shows_the_difference(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path / "demo"), "--steps", "300"]) == 0
    out = capsys.readouterr().out
    assert "First result" in out
    assert (tmp_path / "demo" / "comparison.png").read_bytes()[:4] == b"\x89PNG"
    rows = {
        run: json.loads((tmp_path / "demo" / run / "metrics.jsonl").read_text().splitlines()[-1])
        for run in ("path", "total")
    }
    assert rows["path"]["gradient_norm"] < 0.5 * rows["total"]["gradient_norm"]
    assert "--overwrite" in refused(capsys, "demo", "--out", str(tmp_path / "demo"))


def test_a_broken_checkpoint_is_an_error_and_left_alone(trained, capsys):
    newest = max((trained / "seed0" / "checkpoints").glob("*.safetensors"))
    good = newest.read_bytes()
    newest.write_bytes(good[:-100])
    said = refused(capsys, "evaluate", str(trained / "seed0"))
    assert newest.name in said
    assert newest.read_bytes() == good[:-100]
    newest.write_bytes(good)


def test_a_run_of_an_older_version_is_not_begun_again(trained, capsys, tmp_path):
    run = Path(shutil.copytree(trained / "seed0", tmp_path / "old"))
    for path in list((run / "checkpoints").iterdir()):
        older = b'pathgrad checkpoint %064d\n{"format": 1, "library": "0.1.0"}\n' % 0
        path.with_suffix(".ckpt").write_bytes(older)
        path.unlink()
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for words in (["evaluate", str(run)], ["train", "toy", "--out", str(run), "--resume"]):
        assert "pathgrad 0.1.0" in refused(capsys, *words)
    assert before.keys() == {path for path in run.rglob("*") if path.is_file()}
    assert all(path.read_bytes() == content for path, content in before.items() if path.name != "lock")


def test_a_flow_for_ones_own_density_from_a_file(densities, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(densities.parent)
    out = tmp_path / "mine"
    words = ["train", "density", f"{densities}:good", "--dim", "3", *TINY]
    assert main([*words, "--out", str(out)]) == 0
    assert main(["evaluate", str(out), "--samples", "1000"]) == 0
    result = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert result["samples"] == 1000
    # log Z = 1.5 log 2 pi + log E exp(tanh x0), x0 ~ N(1, 1), by quadrature
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    inner = np.log(np.sum(weights * np.exp(np.tanh(1 + nodes))) / np.sqrt(2 * np.pi))
    exact = 1.5 * np.log(2 * np.pi) + inner
    assert abs(result["log_z"] - exact) < 5 * result["log_z_err"] + 0.05
