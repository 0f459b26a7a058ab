"""Autoencoders on the command line: train, stop, resume, evaluate, sample, compare."""

import json
import tomllib

import numpy as np
import pytest

from pathgrad._cli.main import main
from pathgrad._errors import as_options
from pathgrad.experiments.vae import convolution, problem
from pathgrad.experiments.vae.data.datasets import Dataset
from pathgrad.experiments.vae.verdict import read_verdict

TINY = [
    "--channels", "1", "--latent", "2", "--width", "4", "--rank", "1", "--cnfs", "1", "--solver", "rk4",
    "--solver-steps", "2", "--batch", "20", "--block", "1", "--warmup-epochs", "2",
]  # fmt: skip


def stripes(n, seed):
    """Black and white images of 8 x 4 with a few rows set."""
    rows = np.random.RandomState(seed).binomial(1, 0.3, (n, 8, 1))
    return np.repeat(rows, 4, axis=2).astype(np.uint8)


@pytest.fixture(autouse=True)
def made_images(monkeypatch):
    """Every data set is the same small one, of images made here."""

    def load(name, folder, split_seed):
        del folder, split_seed
        grey = name == "freyfaces"
        parts = [stripes(n, seed) * (255 if grey else 1) for seed, n in enumerate((40, 20, 24))]
        return Dataset(name, *parts, 256 if grey else 2, binarise_each_batch=False)

    monkeypatch.setattr(problem, "load", load)
    # XLA's own convolutions are slow to run, but quick to compile. Ours have their own tests.
    monkeypatch.setattr(convolution, "_rewrites", lambda: False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def run(folder, made_images):
    """A run of three epochs, trained once."""
    path = folder / "path"
    if not path.exists():
        assert (
            main(["train", "vae", "--dataset", "mnist", *TINY, "--epochs", "3", "--out", str(path)])
            == 0
        )
    return path


def metrics(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def without_times(rows):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def test_rows_and_configuration(run):
    rows = metrics(run)
    # 40 images in batches of 20 are two steps an epoch.
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [row["beta"] for row in rows] == [0.5, 0.5, 1, 1, 1, 1]
    assert all(("validation" in row) == (row["step"] % 2 == 0) for row in rows)
    for row in rows:
        assert row["loss"] == pytest.approx(
            row["reconstruction"] + row["beta"] * row["kl"], rel=1e-5
        )
        assert row["evaluations"] == row["evaluations_backward"] == 8
    config = tomllib.loads((run / "config.toml").read_text())
    assert config["experiment"] == "vae"
    assert config["options"]["training"]["optimizer"] == "adamax"


@pytest.mark.slow
def test_a_resumed_run_is_the_same(run, tmp_path):
    out = str(tmp_path / "run")
    words = ["train", "vae", "--dataset", "mnist", *TINY, "--out", out]
    assert main([*words, "--epochs", "1"]) == 0
    assert main(["train", "vae", "--resume", "--epochs", "3", "--out", out]) == 0
    assert without_times(metrics(tmp_path / "run")) == without_times(metrics(run))


def test_resume_keeps_the_model(run, capsys):
    assert main(["train", "vae", "--resume", "--width", "9", "--out", str(run)]) == 2
    assert "--width 4 -> 9" in capsys.readouterr().err


def test_evaluate(run, capsys):
    words = ["evaluate", str(run), "--nll-images", "3", "--samples", "50"]
    assert main(words) == 0
    out = capsys.readouterr().out
    result = json.loads(out.strip().splitlines()[-1])
    assert result == json.loads((run / "evaluation.json").read_text())
    assert result["images"] == 24
    assert result["nll_images"] == 3
    assert result["nll_samples"] == 50
    assert result["negative_elbo"] == pytest.approx(result["reconstruction"] + result["kl"])
    assert result["bits_per_dim"] == pytest.approx(result["negative_elbo"] / (32 * np.log(2)))
    best = min((row["validation"], row["step"]) for row in metrics(run) if "validation" in row)
    assert result["step"] == best[1]
    assert result["best_validation"] == pytest.approx(best[0], rel=1e-5)
    assert "24 test images of mnist" in out
    verdict = read_verdict(result)
    assert result["verdict"] == verdict.to_json()
    assert out.splitlines()[-2] == f"      verdict  {verdict.sentence(result, as_options)}"
    with np.load(run / "evaluation.npz") as arrays:
        assert arrays["originals"].shape == arrays["reconstructions"].shape == (10, 8, 4)
    assert (run / "evaluation.png").stat().st_size > 10_000


@pytest.mark.slow
def test_without_nll_it_says_how_to_get_it(run, capsys):
    assert main(["evaluate", str(run)]) == 0
    out = capsys.readouterr().out
    assert "--nll-images" in out
    assert json.loads(out.strip().splitlines()[-1])["nll"] is None


def test_sample(run, tmp_path, capsys):
    out = tmp_path / "draws.npz"
    assert main(["sample", str(run), "--n", "7", "--out", str(out)]) == 0
    with np.load(out) as arrays:
        assert arrays["x"].shape == arrays["mean_pixel"].shape == (7, 8, 4)
        assert arrays["z"].shape == (7, 2)
    assert "7 draws" in capsys.readouterr().out


def test_compare_and_plot(run, tmp_path, capsys):
    picture = tmp_path / "c.png"
    assert main(["compare", str(run), "--plot", str(picture)]) == 0
    assert "path" in capsys.readouterr().out
    assert picture.stat().st_size > 10_000
    assert main(["plot", str(run), "--out", str(picture), "--figure", "evaluations"]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--batch", "0"], "--batch must be at least 1"),
        (["--divergence", "closed", "--depth", "3"], "--depth 1 or 2"),
        (["--patience", "-1"], "--patience must be at least 0"),
        (["--learning-rate", "0"], "--learning-rate must be a positive number"),
        (["--rank", "0"], "--rank must be at least 1"),
        (["--dataset", "cifar"], "cifar"),
    ],
)
def test_bad_options_are_named(words, said, tmp_path, capsys):
    assert main(["train", "vae", *TINY, *words, "--out", str(tmp_path / "run")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_missing_data_names_the_remedy(tmp_path, capsys, monkeypatch):
    monkeypatch.undo()
    words = [
        "train",
        "vae",
        "--dataset",
        "caltech",
        "--data",
        str(tmp_path),
        "--out",
        str(tmp_path / "r"),
    ]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "pathgrad data download caltech" in said
    assert "PATHGRAD_DATA" in said


@pytest.mark.slow
def test_grey_images_train(tmp_path):
    out = tmp_path / "run"
    words = ["train", "vae", "--dataset", "freyfaces", *TINY, "--epochs", "1", "--out", str(out)]
    assert main(words) == 0
    # Untrained logits are nearly equal: 32 pixels of ln 256 nats.
    assert metrics(out)[0]["reconstruction"] == pytest.approx(32 * np.log(256), rel=0.1)
