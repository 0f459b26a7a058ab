"""Runs that began with runs of smaller lattices: which belong together, their labels, their time."""

import shutil

import pytest

import pathgrad as pg
from pathgrad._runs.options import changes
from pathgrad._runs.rundir import RunDir
from pathgrad.experiments.phi4.base import FreeField
from pathgrad.experiments.phi4.experiment import PHI4

from .phi4_helpers import make_run


def labels(runs):
    return [group.label for group in pg.group_runs(runs)]


def grown(folder, *, seed=0, estimator="path", parent=None, size=8, name="big", **more):
    """A run of size 8 that began with one of size 6, by default of its own seed and estimator."""
    training = {"estimator": estimator}
    parent = parent or make_run(folder / f"small-{estimator}{seed}", seed=seed, training=training)
    path = folder / f"{name}-{estimator}{seed}"
    return make_run(path, seed=seed, training=training, size=size, init_from=str(parent.path), **more)


def test_size_names_the_problem_and_orders_groups(tmp_path):
    runs = [make_run(tmp_path / str(size), size=size) for size in (12, 6)]
    assert [run.label for run in runs] == ["phi4 L = 12, path, seed 0", "phi4 L = 6, path, seed 0"]
    assert [group.first.options["size"] for group in pg.group_runs(runs)] == [6, 12]
    # What must differ between sizes tells no groups apart.
    assert labels(runs) == ["path", "path"]


def test_seeds_that_began_with_seeds_belong_together(tmp_path):
    runs = [grown(tmp_path, seed=seed) for seed in (0, 1)]
    longer = make_run(tmp_path / "longer", [0.5] * 7)
    runs.append(grown(tmp_path, seed=2, parent=longer))
    groups = pg.group_runs(runs)
    assert [len(group.runs) for group in groups] == [2, 1]
    # The steps were not those of the runs themselves.
    assert [group.label for group in groups] == ["path, steps before 30", "path, steps before 70"]


def test_labels_say_what_a_run_began_with(tmp_path):
    same = make_run(tmp_path / "L8", size=8)
    runs = [grown(tmp_path), make_run(tmp_path / "cold", size=8)]
    runs.append(grown(tmp_path, parent=same, name="other"))
    assert labels(runs) == ["path, begun from L = 6", "path, begun from scratch", "path, begun from L = 8"]


def test_a_parent_that_is_gone_counts_by_its_name(tmp_path):
    runs = [grown(tmp_path, seed=seed) for seed in (0, 1)]
    for seed in (0, 1):
        shutil.rmtree(tmp_path / f"small-path{seed}")
    runs = [pg.Run.open(run.path) for run in runs]
    assert labels(runs) == ["path, begun from small-path0", "path, begun from small-path1"]


def test_a_chain_of_parents_counts_as_a_whole(tmp_path):
    chains = []
    for seed in (0, 1):
        middle = grown(tmp_path, seed=seed)
        chains.append(grown(tmp_path, seed=seed, parent=middle, size=12, name="top"))
    assert len(pg.group_runs(chains)) == 1
    short = grown(tmp_path, seed=2, parent=make_run(tmp_path / "M", size=8), size=12, name="top")
    assert [len(group.runs) for group in pg.group_runs([*chains, short])] == [2, 1]
    assert len(set(labels([*chains, short]))) == 2


def test_a_run_in_the_place_of_the_one_it_began_with_has_no_end_of_parents(tmp_path):
    before = {"init_from_seconds": 50.0}
    run = make_run(tmp_path / "a", init_from=str(tmp_path / "a"), provenance=before)
    assert labels([run]) == ["path"]
    assert run.seconds_before == 50.0


def test_rivals_may_differ_in_their_method_and_that_of_their_parents(tmp_path):
    groups = pg.group_runs([grown(tmp_path), grown(tmp_path, estimator="total")])
    assert [group.label for group in groups] == ["path", "total"]
    (found,) = pg.compare_groups(groups)
    doubt = "The training time of the runs they started from is not counted."
    assert found.doubts.count(doubt) == 1
    # Also if both began with the same run, but not if only one of them did at all.
    same = grown(tmp_path, estimator="total", name="same", parent=pg.Run.open(tmp_path / "small-path0"))
    assert len(pg.compare_groups(pg.group_runs([groups[0].first, same]))) == 1
    cold = make_run(tmp_path / "cold", size=8, training={"estimator": "total"})
    assert pg.compare_groups(pg.group_runs([groups[0].first, cold])) == []
    path = make_run(tmp_path / "path", size=8)
    (found,) = pg.compare_groups(pg.group_runs([path, cold]))
    assert doubt not in found.doubts


def test_time_before_is_that_of_the_whole_chain(tmp_path):
    make_run(tmp_path / "a", seconds=2.0)
    known = {"init_from_seconds": 5.0}
    b = make_run(tmp_path / "b", [0.5], size=8, init_from=str(tmp_path / "a"), provenance=known)
    c = make_run(tmp_path / "c", size=12, init_from=str(tmp_path / "b"), provenance=known)
    assert (b.seconds_before, c.seconds_before) == (6.0, 7.0)
    shutil.rmtree(tmp_path / "a")
    # Then what was remembered of it has to do.
    assert pg.Run.open(c.path).seconds_before == 6.0
    assert make_run(tmp_path / "d").seconds_before == 0.0


def test_where_a_parent_was_moved_to_may_be_said_anew(tmp_path):
    run = grown(tmp_path)
    assert PHI4.may_change(run.settings) == ("training.steps", "training.max_seconds")
    shutil.move(tmp_path / "small-path0", tmp_path / "moved")
    assert "init_from" in PHI4.may_change(run.settings)


def test_settled_options_mean_the_same_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = PHI4.Options(init_from="a/L4")
    settled, notes = PHI4.settled(options)
    assert changes(options, settled) == {"init_from": ("a/L4", str(tmp_path / "a" / "L4"))}
    assert notes == []
    assert PHI4.settled(PHI4.Options())[0] == PHI4.Options()


def test_defaults_are_those_of_the_run_to_begin_with(tmp_path):
    flow = {"features": 5, "base_mass_squared": 0.4}
    run = make_run(tmp_path / "a", size=4, coupling=6.975, flow=flow, training={"batch": 7})
    same = PHI4.defaults(init_from=str(run.path))
    assert (same.size, same.coupling, same.flow.base_mass_squared) == (4, 6.975, 0.4)
    assert same == PHI4.defaults(init_from=str(run.path), size="4")
    # Coupling and mass of the base belong to the lattice they were for; the training is the preset's.
    other = PHI4.defaults(init_from=str(run.path), size="6", preset="paper")
    assert (other.coupling, other.flow.base_mass_squared, other.flow.features) == (None, None, 5)
    assert other.training.batch == 5000
    second = PHI4.defaults(init_from=str(run.path), optimizer="gauss-newton")
    assert (second.training.optimizer, second.training.steps) == ("gauss-newton", 30)


def test_only_lattices_can_be_begun_with(tmp_path):
    config = {"experiment": "toy", "options": {"training": {}}}
    RunDir.create(tmp_path / "toy", config)
    flow = pg.Flow(FreeField(6, 0.3))
    for source, said in (("toy", "must be a run of phi4, not of 'toy'"), ("nowhere", "does not exist")):
        with pytest.raises(pg.UserError, match=said):
            PHI4.defaults(init_from=str(tmp_path / source))
        with pytest.raises(pg.UserError, match=said):
            PHI4.begin(PHI4.Options(init_from=str(tmp_path / source)), flow)
