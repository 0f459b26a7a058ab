"""Three forms of second-order training on the lattice, at equal time: which Jacobian, which right-hand side?

scores   least squares of the log-weights on the scores at fixed draws (what `GaussNewton` does)
total    least squares on the total derivative of the log-weights along the moving draws
path     metric from the scores, right-hand side from the path gradient: the natural gradient by two estimates

Draws, damping by trial and trust radius are the same; the first two are shrunk to what is signal. When idle:

    python -m benchmarks.second_order_forms --size 6 --seconds 15
"""

import argparse
import dataclasses
import json
import pathlib

import equinox as eqx
import jax
import jax.random as jr
import numpy as np

import pathgrad as pg
from pathgrad._target import log_prob_of
from pathgrad._train import second_order
from pathgrad._train.damped_step import damped_step
from pathgrad._train.log_weight_moments import Model
from pathgrad._train.row import Row
from pathgrad._train.rundir import provenance
from pathgrad._train.second_order import SecondOrder
from pathgrad.experiments.phi4.options import ladder
from pathgrad.experiments.phi4.problem import build
from pathgrad.experiments.problem import evaluation_key, keys


class Total(SecondOrder):
    """Linearise the log-weight along the moving draw."""

    def prepare(self, state, length):
        if self._differentiate is not None:
            return
        super().prepare(state, length)

        def log_weight(vector, model, key):
            draw = model.flow(vector).push("log_q", keys=key[None])
            log_p = log_prob_of(model.target, draw.x[0])
            return log_p - draw.log_q[0], (log_p, draw.log_q[0])

        @eqx.filter_jit
        def differentiate(model, vector, some):
            each = jax.vmap(jax.grad(log_weight, has_aux=True), in_axes=(None, None, 0))
            jacobian, (log_p, log_q) = each(vector, model, some)
            return log_p, log_q, -jacobian, np.ones(len(some), bool)

        model, vector = Model.split(state.flow, state.target)
        some = jr.split(self.key, self._chunk(state))
        self._differentiate = differentiate.lower(model, vector, some).compile()


class Path(SecondOrder):
    """Take the right-hand side from the path gradient of as many draws."""

    def prepare(self, state, length):
        if self._differentiate is not None:
            return
        super().prepare(state, length)
        model, vector = Model.split(state.flow, state.target)

        @eqx.filter_jit
        def gradient(model, vector, key):
            def loss(vector):
                return pg.reverse_kl(
                    model.flow(vector), model.target, key=key, n=self._chunk(state)
                )

            return jax.grad(loss)(vector)

        self._gradient = gradient.lower(model, vector, self.key).compile()

    def _gather(self, model, vector, keys):
        moments, (metric, _, variance) = super()._gather(model, vector, keys)
        parts = [self._gradient(model, vector, some[0]) for some in keys]
        return moments, (metric, -np.mean([np.asarray(g, np.float64) for g in parts], 0), variance)

    def _move(self, *given):
        # What part of such a step is noise, the regression's formula does not say: it is taken whole.
        second_order.damped_step = whole_step
        try:
            return super()._move(*given)
        finally:
            second_order.damped_step = damped_step


def whole_step(metric, cross, variance, *, n, damping, trust):
    """Return the damped step within the trust radius, not shrunk."""
    found = damped_step(metric, cross, variance, n=n, damping=damping, trust=trust)
    full = found.change / found.share
    share = min(1.0, trust / found.length)
    predicted = (2 * share * (cross @ full) - share**2 * found.length**2) / variance
    return found._replace(change=share * full, share=share, shrink=1.0, predicted=predicted)


FORMS = {"scores": SecondOrder, "total": Total, "path": Path}


def train(form: str, options, seconds: float) -> dict:
    """Train for so long; return the curve, and what the flow is worth at the end."""
    problem = build(options)
    _, train_key, _ = keys(options.training.seed)
    trainer = pg.Trainer(train_key, problem.settings)
    trainer._method = FORMS[form](train_key, problem.settings.optimizer)
    state = pg.init(problem.flow, problem.target, problem.settings.optimizer)
    rows = []
    for state, row in trainer.blocks(state, 10**6, seconds):
        row = Row.of(row)
        rows.append({name: row.value(name) for name in ("step", "seconds", "ess", "kl", "damping")})
        print(form, rows[-1], flush=True)
    found = pg.evaluate(
        state.flow,
        problem.target,
        key=evaluation_key(options.training.seed, 0),
        n=50_000,
        refine=2,
    )
    print(form, found, sep="\n")
    return {"rows": rows, "ess": found.ess, "ess_err": found.ess_err, "kl": found.kl}


def main() -> None:
    """Run all forms one after the other and write them down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--out", default="results/phi4/second_order_forms.json")
    given = parser.parse_args()
    options = dataclasses.replace(ladder(given.size, given.seed)[-1], init_from=None)
    results = {form: train(form, options, given.seconds) for form in FORMS}
    out = pathlib.Path(given.out)
    before = json.loads(out.read_text()) if out.exists() else {}
    before[f"L{given.size}-s{given.seed}"] = {"provenance": provenance(), "forms": results}
    out.write_text(json.dumps(before, indent=1))


if __name__ == "__main__":
    main()
