"""Autoencoders on the command line, from end to end; what they find is tested elsewhere."""

import json

import numpy as np
import pytest

from pathgrad._cli.main import main

from .vae_helpers import PIXELS, publish_small

TINY = [
    "--preset", "tiny", "--hidden", "8", "--latent", "2", "--width", "4", "--solver-steps", "2",
    "--batch", "20", "--block", "1", "--validate", "1", "--warmup-epochs", "2",
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def made_images(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        publish_small(patch, tmp_path_factory.mktemp("images"))
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory, made_images):
    """A run of three epochs, trained once."""
    path = tmp_path_factory.mktemp("runs") / "path"
    words = ["train", "vae", "--dataset", "mnist", *TINY, "--epochs", "3", "--out", str(path)]
    assert main(words) == 0
    return path


def test_evaluate_prints_what_it_writes(run, capsys):
    assert main(["evaluate", str(run), "--nll-images", "3", "--samples", "50"]) == 0
    result = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert result == json.loads((run / "evaluation.json").read_text())
    assert (result["images"], result["nll_images"]) == (24, 3)
    assert (run / "evaluation.png").stat().st_size > 10_000


def test_the_folder_of_the_images_can_be_named(run, tmp_path, capsys):
    assert main(["evaluate", str(run), "--data", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_sample_compare_and_plot(run, tmp_path, capsys):
    out = tmp_path / "draws.npz"
    assert main(["sample", str(run), "--n", "7", "--out", str(out)]) == 0
    with np.load(out) as arrays:
        assert arrays["x"].shape == (7, *PIXELS)
    assert main(["compare", str(run)]) == 0
    assert "path" in capsys.readouterr().out
    picture = tmp_path / "c.png"
    assert main(["plot", str(run), "--out", str(picture), "--figure", "evaluations"]) == 0
    assert picture.stat().st_size > 10_000


def test_resume_keeps_the_model_and_may_go_on_for_longer(run, capsys):
    assert main(["train", "vae", "--resume", "--width", "9", "--out", str(run)]) == 2
    assert "--width 4 -> 9" in capsys.readouterr().err
    assert main(["train", "vae", "--resume", "--epochs", "4", "--out", str(run)]) == 0
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["epoch"] == 4


def test_bad_options_are_named_as_they_were_given(tmp_path, capsys):
    for words, said in ((["--batch", "0"], "--batch must be at least 1"), (["--dataset", "cifar"], "cifar")):
        assert main(["train", "vae", *TINY, *words, "--out", str(tmp_path / "run")]) == 2
        assert said in capsys.readouterr().err
        assert not (tmp_path / "run").exists()


def test_missing_data_names_the_remedy(tmp_path, capsys):
    words = ["--dataset", "caltech", "--data", str(tmp_path), "--out", str(tmp_path / "r")]
    assert main(["train", "vae", *words]) == 2
    said = capsys.readouterr().err
    assert "pathgrad data download caltech" in said
    assert "PATHGRAD_DATA" in said
