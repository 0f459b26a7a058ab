"""Run directories made up for tests of tables and figures: what they show is known."""

import dataclasses
import json
import math

import numpy as np

import pathgrad as pg
from pathgrad._cli.main import main
from pathgrad._numbers.verdict import Level, Reason, Verdict
from pathgrad._runs.rundir import RunDir
from pathgrad._train.row import Row

from .docs_helpers import ROOT

SIZE = 6


def rows_of(ess, seconds=1.0, norm=0.5, **more):
    """Rows of a training in blocks of ten steps, each of so many seconds."""
    norms = np.broadcast_to(norm, len(ess))
    return [
        Row.of(
            {"step": 10 * (i + 1), "seconds": seconds * (i + 1), "ess": e, "kl": -math.log(e) / 2}
            | {"gradient_norm": float(norms[i]), "skipped": 0}
            | more
        )
        for i, e in enumerate(ess)
    ]


def changed(rows, i, **numbers):
    """Rows of which one has other numbers."""
    return [*rows[:i], dataclasses.replace(rows[i], **numbers), *rows[i:][1:]]


GOOD = Verdict(Level.GOOD)


def because(*reasons):
    """The verdict that some reasons leave, by their names."""
    return Verdict.of(Reason[name] for name in reasons)


def make_run(
    path, rows, *, experiment="phi4", estimator="path", seed=0, steps=None, provenance=None, **options
):
    """Write a run; `options` are those of the experiment, beside those of training."""
    training = {"estimator": estimator, "steps": steps or 10 * len(rows), "seed": seed}
    training |= {"learning_rate": options.pop("learning_rate", 0.01), "decay": "cosine"}
    training |= options.pop("training", {})
    config = {"experiment": experiment, "options": {"size": SIZE, **options, "training": training}}
    config["provenance"] = provenance or {"platform": "Linux", "cpus": 2, "command": str(path)}
    run = RunDir.create(path, config)
    for row in rows:
        run.append_metrics(row)
    return run


def recorded_run(path, name):
    """Write a run with the options and the thinned curve of a record below `results/`."""
    record = json.loads((ROOT / "results" / name).read_text())
    run = RunDir.create(path, {part: record[part] for part in ("experiment", "options", "provenance")})
    curve = record["curve"]
    for numbers in zip(*curve.values(), strict=True):
        run.append_metrics(Row.of(dict(zip(curve, numbers, strict=True))))
    return run


def make_evaluation(run, *, step=30, ess=0.9, bias=0.0, arrays=True, verdict=GOOD, **more):
    """Write what `pathgrad evaluate` writes: two observables are known, and one is `bias` errors off.

    `verdict` is a value, or whatever else a file may hold there.
    """
    observables = {
        "phi_2": {"value": 0.16 + bias * 0.005, "error": 0.003, "reference": 0.16},
        "mass_times_size": {"value": 3.9, "error": 0.05, "reference": 4.0},
        "binder": {"value": 0.2, "error": 0.1, "reference": None},
    }
    observables["phi_2"] |= {"reference_error": 0.004, "mcmc_value": 0.17, "mcmc_error": 0.003}
    result = {"step": step, "samples": 500, "failed": 0, "ess": ess, "kl": 0.05, "khat": 0.2}
    result |= {"warnings": [], "observables": observables} | more
    result["verdict"] = verdict.to_json() if isinstance(verdict, Verdict) else verdict
    run.write_json("evaluation.json", result)
    rng = np.random.default_rng(1)
    t = np.arange(SIZE // 2 + 1)
    kept = {
        "log_weight": 7 + 0.3 * rng.normal(size=500),
        "fields": rng.normal(size=(16, SIZE, SIZE)),
        "two_point": 0.3 * np.cosh(4 / SIZE * (t - SIZE / 2)),
        "two_point_err": 0.01 * np.ones(len(t)),
    }
    if arrays:
        np.savez(run.output("evaluation.npz"), allow_pickle=False, **kept)
    return kept, result


def four_runs(tmp_path):
    """Two estimators, two seeds each; the total gradient is quicker by a fifth."""
    ends = {("path", 0): 0.96, ("path", 1): 0.98, ("total", 0): 0.80, ("total", 1): 0.90}
    for (estimator, seed), end in ends.items():
        rows = rows_of([0.2, 0.5, end], seconds=5.0 if estimator == "path" else 4.0)
        make_run(tmp_path / f"{estimator}{seed}", rows, estimator=estimator, seed=seed)
    return [tmp_path / f"{estimator}{seed}" for estimator, seed in ends]


def groups_of(*paths):
    return pg.group_runs([pg.Run.open(path) for path in paths])


def compared(*paths):
    return pg.compare_groups(groups_of(*paths))


def refused(capsys, *words):
    assert main([*map(str, words)]) == 2
    err = capsys.readouterr().err
    assert len(err.strip().splitlines()) == 1
    return err
