"""An experiment of the tests' own, and runs of it made up so that what they show is known."""

import dataclasses
import json
import math

import numpy as np

from pathgrad._numbers.quantity import Quantity
from pathgrad._numbers.verdict import Level, Reason, Verdict, read_verdict
from pathgrad._runs.experiment import AbstractExperiment, ResultTable
from pathgrad._runs.group import group_runs
from pathgrad._runs.panel import MissingData, Panel
from pathgrad._runs.run import Run
from pathgrad._runs.rundir import RunDir
from pathgrad._show.style import looks_of
from pathgrad._train.row import Row

EVIL = "<img src=x onerror=alert(1)>"
NOTHING = dataclasses.make_dataclass("NOTHING", [])

SHARE = Quantity("ess", "effective sample size", "share", axis="share", better=1, means="up is better")
COST = Quantity("validation", "validation loss", "{:.2f}", "nats", better=-1, best=True)
KL = Quantity("kl", "reverse KL", "{:.5f}", axis="log", better=-1, compared=True)
CURVES = (
    Quantity("gradient_norm", "gradient norm", "{:.3g}", axis="log", means="small at the end"),
    Quantity("evaluations", "field evaluations of a step", "{:.4g}"),
    dataclasses.replace(KL, title="KL divergence"),
)


class Fairground(AbstractExperiment):
    """Is followed by a share and counted in steps; with a data set, by a loss and in epochs."""

    name = "fairground"
    summary = "Shoot at tins."
    Options = EvaluateOptions = NOTHING
    has_panels = True

    def build(self, options):
        raise NotImplementedError

    def length(self, options):
        unit = "epoch" if self._has_data(options) else "step"
        return unit, options["training"].get(f"{unit}s")

    def alike(self, options):
        training = {k: v for k, v in options["training"].items() if k not in ("seed", "steps")}
        return {**{k: v for k, v in options.items() if k != "training"}, **training}

    shown_options = ("target", "estimator")
    compared_options = ("estimator",)

    def _has_data(self, options):
        return str(options.get("target")).startswith("data")

    def followed(self, options):
        return COST if self._has_data(options) else SHARE

    def result(self, options):
        return Quantity("cost", "test loss", "{:.2f}", "nats") if self._has_data(options) else SHARE

    def curves(self, options):
        return CURVES

    def measured(self, options):
        return [self.result(options), KL, Quantity("khat", "k-hat", "{:.2f}", compared=True)]

    def published(self, options):
        return {"path": 99.0} if self._has_data(options) else {}

    def verdict(self, evaluation):
        return read_verdict(evaluation)

    def tables(self, run):
        if "tins" not in run.evaluation:
            return []
        rows = [("upper", "3 ± 1", "-4"), ("lower", "7 ± 1", "1")]
        return [ResultTable(f"Tins {EVIL}", ("shelf", "fallen", "off by"), rows, (0,), "Counted by hand.")]

    def explained(self, runs):
        return [f"Of 100 shots {len(runs)} are free `{EVIL}`."]

    def warnings(self, run):
        return [f"The tins are glued ({EVIL}): bring `a hammer`."] if "glued" in run.evaluation else []

    def panels(self):
        return {
            "spread": Panel("Spread of the shots", _histogram, needs=("log_weight",)),
            "shots": Panel("Shots", _scatter, "seen from above", is_of_one=True, needs=("x",)),
            "tins": Panel("Tins", _image, is_of_one=True, needs=("tins",), width=4.0),
            "never": Panel("Never", _never),
        }


def _histogram(axes, groups):
    for group, how in zip(groups, looks_of(groups), strict=True):
        counts, edges = np.histogram(group.first.arrays["log_weight"], 40)
        axes.stairs(counts, edges, color=how["color"], label=group.label)
    axes.set(xlabel="metres", ylabel="shots")
    return "Histogram of shots."


def _scatter(axes, groups):
    x = groups[0].first.arrays["x"]
    axes.scatter(x[:, 0], x[:, 1], s=2, alpha=0.5, lw=0, color=looks_of(groups)[0]["color"])
    return f"{len(x)} shots {EVIL}."


def _image(axes, groups):
    axes.imshow(groups[0].first.arrays["tins"], cmap="gray")
    axes.set_axis_off()
    return "A picture of tins."


def _never(axes, groups):
    raise MissingData("There is never anything to see here.")


EXPERIMENT = Fairground()
MACHINE = {"platform": "Linux", "cpus": 2}


def rows_of(ess, *, seconds=1.0, **more):
    """Rows of a training in blocks of ten steps; a list in `more` has a number for each."""
    rows = []
    for i, share in enumerate(ess):
        each = {n: v[i] if isinstance(v, list) else v for n, v in more.items()}
        numbers = {"step": 10 * (i + 1), "seconds": seconds * (i + 1), "skipped": 0, "ess": share}
        numbers |= {"gradient_norm": 1 / (i + 1), "evaluations": 32.0}
        numbers |= {"kl": -math.log(share) / 2 if share else None}
        rows.append(Row.of(numbers | each))
    return rows


def make_run(path, rows, *, method="path", seed=0, steps=None, machine=MACHINE, **options):
    """Write a run, and open it."""
    training = {"estimator": method, "seed": seed, "steps": steps or 10 * len(rows)}
    options = {"target": "tins", **options, "training": training | options.pop("training", {})}
    made = {**machine, "command": f"pathgrad train fairground {path.name}"}
    config = {"experiment": EXPERIMENT.name, "options": options, "provenance": made}
    RunDir.create(path, config)
    lines = [json.dumps(row.to_json()) + "\n" for row in rows]  # at once, as there may be many
    (path / "metrics.jsonl").write_text("".join(lines))
    return Run.open(path, EXPERIMENT)


def evaluate(run, *, arrays=None, verdict=Verdict(Level.GOOD), step=None, **numbers):
    """Write what an evaluation leaves, and open the run anew."""
    found = {"step": step or run.last.step, "samples": 500, "failed": 0, "khat": 0.2}
    found |= {"verdict": verdict.to_json()} | numbers
    run.directory.write_json("evaluation.json", found)
    if arrays is not None:
        np.savez(run.directory.output("evaluation.npz"), **arrays)
    return Run.open(run.path, EXPERIMENT)


def draws(seed=0, count=2000):
    rng = np.random.default_rng(seed)
    tins = rng.uniform(size=(12, 16))
    return {"log_weight": rng.normal(size=count), "x": rng.normal(size=(count, 2)), "tins": tins}


def because(*names):
    return Verdict.of(Reason[name] for name in names)


def four_runs(folder, **more):
    """Two methods, two seeds each; the second is quicker by a fifth."""
    ends = {("path", 0): 0.96, ("path", 1): 0.98, ("total", 0): 0.80, ("total", 1): 0.90}
    return [
        make_run(
            folder / f"{method}{seed}",
            rows_of([0.2, 0.5, end], seconds=5.0 if method == "path" else 4.0),
            method=method,
            seed=seed,
            **more,
        )
        for (method, seed), end in ends.items()
    ]


def grouped(runs):
    return group_runs(runs)
