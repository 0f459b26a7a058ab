"""Autoencoders in run directories: train, resume, evaluate, sample, with images and without."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

import pathgrad as pg
from pathgrad._runs import work
from pathgrad._runs.rundir import RunDir
from pathgrad._runs.session import Session
from pathgrad.experiments.vae import problem
from pathgrad.experiments.vae.data.sources import SOURCES
from pathgrad.experiments.vae.experiment import VAE
from pathgrad.experiments.vae.importance import Likelihood, Solver
from pathgrad.experiments.vae.options import AutoencoderEvaluateOptions, AutoencoderOptions, preset
from pathgrad.experiments.vae.watch import SolverWatch, with_steps

from .vae_helpers import IMAGES, PIXELS, TINY, changed, publish, publish_small


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """The folder of small images."""
    folder = tmp_path_factory.mktemp("images")
    with pytest.MonkeyPatch.context() as patch:
        publish_small(patch, folder)
        yield folder


@pytest.fixture(scope="module")
def trained(images, tmp_path_factory):
    """A run of three epochs."""
    return pg.train(VAE, TINY, out=tmp_path_factory.mktemp("runs") / "path")


@pytest.fixture
def run(trained):
    """The run, with nothing read of it yet."""
    return pg.Run.open(trained.path, VAE)


@pytest.fixture
def no_images(monkeypatch, tmp_path):
    """A data folder with nothing in it."""
    monkeypatch.setenv("PATHGRAD_DATA", str(tmp_path / "empty"))
    return tmp_path / "empty"


def without_times(rows):
    return [dataclasses.replace(row, seconds=0.0) for row in rows]


def test_rows_and_configuration(run):
    # 40 images in batches of 20 are two steps an epoch.
    assert [row.step for row in run.rows] == [1, 2, 3, 4, 5, 6]
    assert [row.more["beta"] for row in run.rows] == [0.5, 0.5, 1, 1, 1, 1]
    assert all((row.validation is not None) == (row.step % 2 == 0) for row in run.rows)
    assert run.config["experiment"] == "vae"
    assert run.settings == TINY
    assert run.status.kind == "ended"


class Stopped(Exception):
    pass


@pytest.mark.slow
def test_a_resumed_run_is_the_same(run, tmp_path, monkeypatch):
    """Stopped after the first epoch of three, with a checkpoint at each row."""
    kept = Session.save

    def save(self):
        kept(self)
        if int(self.state.step) == 2:
            raise Stopped

    monkeypatch.setattr(Session, "save", save)
    with pytest.raises(Stopped):
        pg.train(VAE, TINY, out=tmp_path / "run", checkpoint_seconds=1e-9)
    monkeypatch.undo()
    again = pg.train(VAE, TINY, out=tmp_path / "run", resume=True)
    assert without_times(again.rows) == without_times(run.rows)


def test_a_run_knows_its_solver_steps(images, tmp_path, monkeypatch):
    """Whatever the options say: more were taken in training, and then in all that comes after it."""
    change = lambda steps: lambda model: with_steps(model, steps + 1)  # noqa: E731
    monkeypatch.setattr(SolverWatch, "__call__", lambda self, m, *, key: change(int(m.flow.solver_steps)))
    # Within hours, of which the plan of the first call needs one epoch, and that of the second two.
    run = pg.train(VAE, changed(TINY, epochs=1, max_seconds=1e4), out=tmp_path / "run")
    assert work.trained(run).model.flow.integrator == pg.FixedStep(3)
    again = pg.train(VAE, changed(TINY, epochs=2, max_seconds=1e4), out=run.path, resume=True)
    assert work.trained(again).model.flow.integrator == pg.FixedStep(4)
    assert [row.evaluations for row in again.rows] == [8, 8, 12, 12]
    monkeypatch.undo()
    publish_small(monkeypatch, tmp_path / "images")
    assert again.evaluate()["evaluations"] == 16


def test_evaluation_is_of_the_best_epoch(run):
    result = run.evaluate(nll_images=3, samples=50)
    assert result == json.loads((run.path / "evaluation.json").read_text())
    assert (result["images"], result["nll_images"], result["nll_samples"]) == (24, 3, 50)
    assert result["negative_elbo"] == pytest.approx(result["reconstruction"] + result["kl"])
    bits = np.prod(PIXELS) * np.log(2)
    assert result["bits_per_dim"] == pytest.approx(result["negative_elbo"] / bits)
    assert 0 <= result["divergence_error"] < 1e-12
    assert result["step"] == run.best.step
    assert result["epoch"] == run.best.epoch
    assert result["best_validation"] == pytest.approx(run.best.validation, rel=1e-5)
    assert result["verdict"] == VAE.verdict(result).to_json()
    run = pg.Run.open(run.path, VAE)
    assert run.is_evaluated
    each, rows = run.arrays["negative_elbo"], run.arrays["nll_image"]
    assert run.arrays["originals"].shape == run.arrays["reconstructions"].shape == (10, *PIXELS)
    assert result["nll"] == pytest.approx(run.arrays["nll"].mean())
    assert result["nll_images_negative_elbo"] == pytest.approx(each[rows].mean())
    # Everything that is announced is there.
    assert all(pg.number_in(result, quantity.name) is not None for quantity in VAE.measured(run.options))
    assert all(panel.can_draw(run) for panel in VAE.panels().values())
    assert all(q.value(run.numbers) is not None for q in VAE.columns(run.options))


def evaluated(run, monkeypatch, found, *, processes=1, seed=0):
    """What an evaluation yields, if likelihoods were to be found like this."""
    monkeypatch.setattr(problem, "likelihoods", found)
    monkeypatch.setattr(problem, "coarsest", lambda *args, **how: Solver(1, 0.0))
    monkeypatch.setattr(jax, "process_count", lambda: processes)
    how = AutoencoderEvaluateOptions(nll_images=3, samples=50)
    told = []
    yield from run.problem().evaluate(
        work.trained(run), how, key=jax.random.key(seed), tell=lambda *words: told.append(words)
    )
    assert told[-1] == ("ELBO, images", 24, 24)


def interrupted(model, images, **how):
    yield Likelihood(-20.0, 5.0)
    raise KeyboardInterrupt


def test_the_bound_comes_first_and_an_interrupted_likelihood_is_kept(run, monkeypatch):
    first, second = evaluated(run, monkeypatch, interrupted)
    assert first.numbers["nll"] is first.numbers["nll_images"] is None
    assert second.numbers["nll"] == 20.0
    assert second.numbers["nll_images"] == len(second.arrays["nll_image"]) == 1
    assert second.numbers["negative_elbo"] == first.numbers["negative_elbo"]
    # Whatever the seed: else two runs would be judged by other images.
    assert "few_effective_draws" in second.numbers["verdict"]["reasons"]
    *_, other = evaluated(run, monkeypatch, interrupted, seed=5)
    assert other.arrays["nll_image"].tolist() == second.arrays["nll_image"].tolist()
    assert np.array_equal(other.arrays["originals"], second.arrays["originals"])
    assert not np.array_equal(other.arrays["negative_elbo"], second.arrays["negative_elbo"])


def test_of_several_processes_an_interrupted_one_stops(run, monkeypatch):
    found = evaluated(run, monkeypatch, interrupted, processes=2)
    next(found)
    with pytest.raises(KeyboardInterrupt):
        next(found)


def test_draws_need_no_images(run, no_images):
    arrays = run.sample(7)
    assert arrays["x"].shape == arrays["mean_pixel"].shape == (7, *PIXELS)
    assert arrays["z"].shape == (7, 2)
    assert set(np.unique(arrays["x"])) <= {0, 1}
    assert np.array_equal(run.sample(7)["x"], arrays["x"])
    assert not np.array_equal(run.sample(7, seed=2)["z"], arrays["z"])
    with pytest.raises(pg.ArgumentError, match="`refine`"):
        run.sample(7, refine=2)


def test_evaluation_says_which_images_are_missing_and_takes_another_folder(run, no_images, images):
    kept = (run.path / "evaluation.json").exists()
    with pytest.raises(pg.UserError, match=rf"mnist needs M/\w+\.amat.*{no_images}.*`data`"):
        run.evaluate()
    assert (run.path / "evaluation.json").exists() == kept
    moved = no_images.parent / "moved"
    shutil.copytree(images, moved)
    assert run.evaluate(data=moved)["images"] == IMAGES[2]


def test_training_without_images_makes_no_directory(no_images, images, tmp_path):
    with pytest.raises(pg.UserError, match="PATHGRAD_DATA"):
        pg.train(VAE, TINY, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_shell_is_the_training_but_for_the_images(images, no_images):
    bare = VAE.build(TINY)
    shell = bare.shell()
    assert len(shell.objective.data) == len(shell.validation.objective.data) == 1
    with pytest.raises(pg.UserError, match="mnist needs"):
        _ = bare.training
    whole = VAE.build(dataclasses.replace(TINY, data=str(images)))
    assert len(whole.training.objective.data) == IMAGES[0]
    assert whole.training is whole.training
    assert jax.tree.structure(whole.training.model) == jax.tree.structure(shell.model)


BAD = {
    "batch": (changed(TINY, batch=0), "`batch` must be at least 1"),
    "patience": (changed(TINY, patience=-1), "`patience` must be at least 0"),
    "rate": (changed(TINY, learning_rate=0.0), "`learning_rate` must be a positive number"),
    "hold": (changed(TINY, rate_hold=1.5), "`rate_hold` must be from 0 to 1"),
    "shifts": (changed(TINY, shifts=-0.1), "`shifts` must be from 0 to 1"),
    "clip": (changed(TINY, clip=-1.0), "`clip` must be at least 0"),
    "channels": (
        dataclasses.replace(TINY, network=dataclasses.replace(TINY.network, channels=0)),
        "`channels` must be at least 1",
    ),
    "rank": (
        dataclasses.replace(TINY, flow=dataclasses.replace(TINY.flow, field="low-rank", rank=0)),
        "`rank` must be at least 1",
    ),
    "gates": (
        dataclasses.replace(TINY, flow=dataclasses.replace(TINY.flow, depth=2)),
        "Gates have one hidden layer.*`field` low-rank",
    ),
    "depth": (
        dataclasses.replace(TINY, flow=dataclasses.replace(TINY.flow, depth=3, divergence="closed")),
        "`depth` 1 or 2",
    ),
}


@pytest.mark.parametrize(("options", "said"), BAD.values(), ids=BAD)
def test_bad_options_are_named(options, said):
    with pytest.raises(pg.UserError, match=said):
        VAE.build(options)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"nll_images": -1}, "`nll_images` must be at least 0"),
        ({"nll_images": 1, "samples": 0}, "`samples` must be at least 1"),
        ({"samples": 10}, "`nll_images`"),
        ({"refine": 0}, "`refine` must be at least 1"),
    ],
)
def test_bad_options_of_an_evaluation_are_named(run, how, said):
    with pytest.raises(pg.ArgumentError, match=said):
        run.evaluate(**how)


def test_the_rebuilt_omniglot_is_taken_with_a_word(monkeypatch, tmp_path):
    contents = {"all": ("O/r.mat", b"not read")}
    publish(monkeypatch, tmp_path, "omniglot-rebuilt", contents, (9, 3, 4), (4, 4))
    monkeypatch.chdir(tmp_path.parent)
    wanted = AutoencoderOptions("omniglot", data=tmp_path.name)
    found, notes = VAE.settled(wanted)
    assert (found.dataset, found.data) == ("omniglot-rebuilt", str(tmp_path.resolve()))
    assert len(notes) == 1
    assert "omniglot-rebuilt" in notes[0]
    assert VAE.settled(found) == (found, [])
    assert VAE.settled(AutoencoderOptions("mnist")) == (AutoencoderOptions("mnist"), [])


def test_defaults_are_those_of_a_preset():
    assert VAE.defaults().dataset == "mnist"
    paper = VAE.defaults(preset="paper", dataset="caltech")
    assert (paper.dataset, paper.flow.width, paper.training.patience) == ("caltech", 2048, 100)
    assert VAE.defaults(dataset="caltech").flow.width < 2048
    assert VAE.defaults() == VAE.defaults(preset="cpu", dataset="mnist")
    assert VAE.defaults(preset="tiny").network.networks == "mlp"
    assert VAE.defaults(preset="paper", dataset="omniglot-rebuilt").flow.cnfs == 5
    assert set(VAE.presets) == {"cpu", "paper", "tiny"}
    with pytest.raises(pg.UserError, match="cifar"):
        VAE.defaults(dataset="cifar")


@pytest.mark.slow
def test_grey_images_train(images, tmp_path):
    options = dataclasses.replace(changed(TINY, epochs=1), dataset="freyfaces")
    run = pg.train(VAE, options, out=tmp_path / "run")
    # Untrained logits are not far from equal: 32 pixels of ln 256 nats.
    assert run.rows[0].more["reconstruction"] == pytest.approx(32 * np.log(256), rel=0.3)
    # In bits per pixel, that is eight.
    assert VAE.followed(run.options).value(run.rows[-1].to_json()) == pytest.approx(8, rel=0.3)


@pytest.mark.parametrize("dataset", sorted(SOURCES))
@pytest.mark.parametrize("name", VAE.presets)
def test_presets_are_read_back_from_a_run(name, dataset, tmp_path):
    """A file has no `None`: where that is not the default, it would come back as something else."""
    options = preset(name, dataset)
    # A run states whether it dreams.
    training = dataclasses.replace(options.training, dreams=options.training.is_dreaming)
    options = dataclasses.replace(options, training=training)
    RunDir.create(tmp_path / "run", {"experiment": "vae", "options": dataclasses.asdict(options)})
    assert pg.Run.open(tmp_path / "run", VAE).settings == options
