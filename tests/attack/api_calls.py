"""Right calls of everything public, and wrong values of their arguments."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

import pathgrad as pg


def normal(x):
    """Return the log density of a standard normal."""
    return -0.5 * jnp.sum(x**2)


KEY = jr.key(0)
FLOW = pg.Flow(pg.StandardNormal((2,)))
FIELD = pg.MLPField(2, 4, key=KEY)
SOLVED = pg.Flow(pg.StandardNormal((2,)), [pg.CNF(FIELD)])
TARGET = pg.LogDensity(normal, (2,))
DATA = pg.Data(np.zeros((4, 2)))
ADAM = pg.FirstOrder(optax.adam(1e-3))
NAN, INF = math.nan, math.inf


@dataclasses.dataclass
class Unhashable:
    """A target that JAX cannot compile."""

    scale: float = 1.0

    def log_prob(self, x):
        return normal(x)


# Wrong values, by what is asked for.
NOT_WHOLE = [1.5, "3", NAN, 1j, [1], np.float64(2.0), True, object()]
COUNT = [*NOT_WHOLE, 0, -1, None]
MAYBE_COUNT = COUNT[:-1]
FROM_ZERO = [*NOT_WHOLE, -1]
NUMBER = ["a", None, 1j, [1.0, 2.0], NAN, INF, object()]
POSITIVE = [*NUMBER, 0.0, -1.0]
POSITIVE_OR_OFF = [v for v in POSITIVE if v is not INF]
NOT_NEGATIVE = [*NUMBER, -1.0]
SECONDS = ["a", 1j, [1.0, 2.0], NAN, object(), 0.0, -1.0, -INF]
SHARE = [*NUMBER, 0.0, 1.0, -0.5]
ONE_KEY = [0, "key", None, 1.5, jr.split(KEY, 3), np.zeros(2)]
KEYS = [0, "key", None, 1.5, np.zeros(2)]
SHAPE = [1.5, "ab", (1.5,), (-1,), (0,), None, {"a": 1}, -1]
ARRAY = ["a", None, np.array([1j]), object(), {"a": 1}]
FUNCTION = [3, "tanh", [1]]
OBJECT = [3, "flow", object(), [1]]
A_FLOW = [*OBJECT, None, pg.Flow, TARGET]
A_TARGET = [*OBJECT, None, normal, pg.LogDensity, Unhashable()]
A_FITTING_TARGET = [*A_TARGET, pg.LogDensity(normal, (3,))]
WORD = ["no such", 3, None, ["x"]]
PATH = [3, 1.5, [1]]

Row = tuple[Callable[..., Any], dict[str, Any], dict[str, list[Any]]]


def row(function: Callable[..., Any], right: dict[str, Any] | None = None, /, **wrong: list[Any]) -> Row:
    """Describe a function: arguments that are right, and wrong values of some or all of them."""
    return function, right or {}, wrong


def _draws(**change: Any) -> dict[str, Any]:
    return {"x": np.zeros((30, 2)), "log_q": np.zeros(30), "log_weight": np.zeros(30)} | change


FLOW_AND_TARGET = {"flow": FLOW, "target": TARGET, "key": KEY}
WEIGHTED = [3, "draws", {}, {"x": np.zeros((3, 2))}, {"log_weight": np.zeros(3)}]
UNEQUAL = [*WEIGHTED, _draws(log_weight=np.zeros(4)), _draws(log_weight=np.float64(0.0))]

CALLS: dict[str, Row] = {
    "Adaptive": row(pg.Adaptive, rtol=NOT_NEGATIVE, atol=NOT_NEGATIVE, solver=WORD, max_steps=COUNT),
    "Affine": row(pg.Affine, {"shift": [0.0, 0.0], "log_scale": 0.0}, shift=ARRAY, log_scale=ARRAY),
    "Affine.identity": row(pg.Affine.identity, shape=SHAPE),
    "AffineCoupling": row(
        pg.AffineCoupling,
        {"dim": 2, "width": 4, "key": KEY},
        dim=[*COUNT, 1],
        width=COUNT,
        depth=COUNT,
        key=ONE_KEY,
        bound=POSITIVE,
        output_scale=NUMBER,
        features=FUNCTION,
    ),
    "CNF": row(
        pg.CNF,
        {"field": FIELD},
        field=[*FUNCTION, pg.MLPField],
        divergence=[*OBJECT, pg.Exact],
        integrator=[*OBJECT, None, pg.FixedStep],
        adjoint=[*OBJECT, pg.Discrete],
        t0=NUMBER,
        t1=[*NUMBER, 0.0],
        tally=OBJECT,
    ),
    "Constant": row(pg.Constant, array=ARRAY),
    "CorrelatedField": row(pg.CorrelatedField, correlation=[*ARRAY, np.zeros(3), np.zeros((2, 3))]),
    "Data": row(
        pg.Data,
        {"rows": np.zeros((3, 2))},
        rows=[3, np.zeros(()), np.zeros((0, 2))],
        change=FUNCTION,
        augment=FUNCTION,
    ),
    "DefensiveNormal": row(
        pg.DefensiveNormal,
        {"event_shape": (2,)},
        event_shape=SHAPE,
        share=SHARE,
        factor=[*POSITIVE, 1.0],
        dtype=["no such", int, 3],
    ),
    "DiagonalNormal": row(
        pg.DiagonalNormal,
        {"mean": [0.0], "log_scale": [0.0]},
        mean=[*ARRAY, [0.0, 0.0]],
        log_scale=[*ARRAY, [0.0, 0.0]],
    ),
    "DiagonalNormal.standard": row(pg.DiagonalNormal.standard, shape=SHAPE),
    "Discrete": row(pg.Discrete, max_steps=COUNT),
    "FirstOrder": row(
        pg.FirstOrder,
        {"optimizer": optax.adam(1e-3)},
        optimizer=[*OBJECT, None, "adam", optax.adam],
        n=COUNT,
        block=COUNT,
        average=[v for v in SHARE if v is not None],
        rate=OBJECT,
    ),
    "FixedStep": row(pg.FixedStep, steps=COUNT),
    "FixedStep.refined": row(pg.FixedStep(2).refined, factor=COUNT),
    "Flow": row(
        pg.Flow,
        {"base": pg.StandardNormal((2,))},
        base=[*OBJECT, None, pg.StandardNormal],
        transforms=[3, "cnf", pg.CNF(FIELD), [3], [FIELD], None],
    ),
    "Flow.draw": row(
        FLOW.draw, {"carry": "x", "key": KEY, "n": 2}, carry=WORD, key=KEYS, n=COUNT, chunk=MAYBE_COUNT
    ),
    "Flow.log_prob": row(
        FLOW.log_prob,
        {"x": np.zeros((1, 2))},
        x=[*ARRAY, np.zeros(2), np.zeros((2, 3)), 1.0],
        key=[0, "key", 1.5],
        chunk=MAYBE_COUNT,
    ),
    "Flow.refined": row(SOLVED.refined, factor=COUNT),
    "Flow.sample": row(FLOW.sample, {"key": KEY, "n": 2}, key=KEYS, n=COUNT, chunk=MAYBE_COUNT),
    "Flow.sample_and_log_prob": row(
        FLOW.sample_and_log_prob, {"key": KEY, "n": 2}, key=KEYS, n=COUNT, chunk=MAYBE_COUNT
    ),
    "Flow.sample_with_score": row(
        FLOW.sample_with_score, {"key": KEY, "n": 2}, key=KEYS, n=COUNT, chunk=MAYBE_COUNT
    ),
    "FullAffine": row(
        pg.FullAffine,
        {"shift": [0.0], "matrix": [[1.0]]},
        shift=[*ARRAY, [0.0, 0.0], [NAN]],
        matrix=[*ARRAY, [[0.0]], [[1.0, 2.0]]],
    ),
    "FullNormal": row(
        pg.FullNormal,
        {"mean": [0.0], "lower": [[0.0]], "log_diagonal": [0.0]},
        mean=ARRAY,
        lower=[*ARRAY, [0.0]],
        log_diagonal=[*ARRAY, [0.0, 0.0]],
    ),
    "FullNormal.from_covariance": row(
        pg.FullNormal.from_covariance,
        {"mean": [0.0], "covariance": [[1.0]]},
        mean=ARRAY,
        covariance=[*ARRAY, [[-1.0]], [1.0]],
    ),
    "FullNormal.standard": row(pg.FullNormal.standard, shape=SHAPE),
    "GaussNewton": row(
        pg.GaussNewton,
        draws_per_parameter=[*POSITIVE, 1.0],
        max_draws_per_parameter=[*POSITIVE[2:], 1.0],
        damping=POSITIVE,
        trust=POSITIVE_OR_OFF,
        clip=POSITIVE_OR_OFF,
        trials=MAYBE_COUNT,
        chunk=MAYBE_COUNT,
        max_parameters=MAYBE_COUNT,
    ),
    "Hutchinson": row(pg.Hutchinson, probes=COUNT, noise=WORD),
    "LogDensity": row(
        pg.LogDensity,
        {"log_prob": normal, "shape": (2,)},
        log_prob=[*FUNCTION, None, lambda x: x, lambda x: "a", lambda x: 1j * x[0], lambda x: x[0] > 0],
        shape=SHAPE,
    ),
    "LowRankAffine": row(
        pg.LowRankAffine,
        {"shift": [0.0], "scale": [1.0]},
        shift=[*ARRAY, [0.0, 0.0]],
        scale=[*ARRAY, [0.0], [-1.0]],
        directions=[[[1.0]], "a"],
        stretch=[[2.0], "a"],
    ),
    "MLPField": row(
        pg.MLPField,
        {"dim": 2, "width": 4, "key": KEY},
        dim=COUNT,
        width=COUNT,
        depth=COUNT,
        key=ONE_KEY,
        activation=FUNCTION,
        output_scale=NUMBER,
    ),
    "NegativeELBO": row(
        pg.NegativeELBO,
        {"entries": DATA},
        entries=[*OBJECT, None],
        estimator=[*OBJECT, None, pg.PathGradient],
        beta=[1.0, "a"],
    ),
    "NormalMixture": row(
        pg.NormalMixture,
        {"logits": [0.0], "means": [[0.0]], "log_scales": [[0.0]]},
        logits=[*ARRAY, [0.0, 0.0]],
        means=[*ARRAY, [[0.0, 0.0]]],
        log_scales=[*ARRAY, [[0.0, 0.0]]],
    ),
    "NormalMixture.at": row(pg.NormalMixture.at, {"means": [[0.0]]}, means=ARRAY, scale=POSITIVE),
    "Permutation": row(pg.Permutation, order=[*ARRAY, [1, 2], [0, 0], [[0, 1]], [0.5, 1.0]]),
    "Permutation.random": row(pg.Permutation.random, {"dim": 2, "key": KEY}, dim=COUNT, key=ONE_KEY),
    "Posterior": row(
        pg.Posterior,
        {"log_prob": lambda p: normal(p["a"]), "supports": {"a": pg.real()}},
        log_prob=[*FUNCTION, None],
        supports=[3, {}, {"a": 3}, ["a"], {"a": pg.real}],
        derived=FUNCTION,
    ),
    "Precise": row(pg.Precise, target=A_TARGET),
    "Recipe": row(
        pg.Recipe,
        warm_start=FUNCTION,
        start=["a", 1j],
        draws=["a", 1j],
        flow=OBJECT,
        kinds=[3, "tied", ["tied"], pg.Kind.TIED],
        n=MAYBE_COUNT,
        first=MAYBE_COUNT,
        rounds=MAYBE_COUNT,
        double=[3, "yes"],
        look_draws=MAYBE_COUNT,
        defence=[3, None],
        mode_search=[3, None],
        plan=OBJECT,
    ),
    "Restarts": row(pg.Restarts, first=COUNT),
    "ReverseKL": row(
        pg.ReverseKL,
        target=A_TARGET[:4] + A_TARGET[5:],
        estimator=[*OBJECT, None, pg.PathGradient],
        log_z=["a", NAN],
        log_z_err=NOT_NEGATIVE,
    ),
    "Run.open": row(pg.Run.open, path=PATH),
    "ScoreRegression": row(pg.ScoreRegression, n=MAYBE_COUNT),
    "Stages": row(
        pg.Stages, stages=[3, [], "ab", [ADAM], [(ADAM, 0)], [(ADAM, 1.5)], [(3, 10)], [(ADAM, 1, 2)]]
    ),
    "StandardNormal": row(
        pg.StandardNormal, {"event_shape": (2,)}, event_shape=SHAPE, dtype=["no such", int, 3]
    ),
    "TiedField": row(
        pg.TiedField,
        {"dim": 2, "key": KEY},
        dim=COUNT,
        rows=[0, 1.5, "a", np.zeros(3), np.zeros((2, 3))],
        key=ONE_KEY,
    ),
    "Trainer": row(
        pg.Trainer,
        {"objective": pg.ReverseKL(TARGET), "method": ADAM, "key": KEY},
        objective=[*OBJECT, None, TARGET, pg.ReverseKL],
        method=[*OBJECT, None, optax.adam(1e-3)],
        key=ONE_KEY,
        validation=OBJECT,
        max_failures=COUNT,
        seconds=NOT_NEGATIVE,
    ),
    "Trapezoid": row(pg.Trapezoid, warmup=FROM_ZERO, hold=[*NUMBER, -0.1, 1.1]),
    "Validation": row(
        pg.Validation,
        {"objective": pg.NegativeELBO(DATA), "every": 5},
        objective=[*OBJECT, None, pg.ReverseKL(TARGET)],
        every=COUNT,
        n=COUNT,
        patience=FROM_ZERO,
        patient_until=[*FROM_ZERO, None],
        watch=FUNCTION,
    ),
    "Weighted.smoothed": row(
        pg.Weighted.smoothed,
        {"x": np.zeros((3, 2)), "log_weight": np.zeros(3)},
        x=[*ARRAY, np.zeros((4, 2))],
        log_weight=[*ARRAY, np.zeros(4), 0.0],
    ),
    "Whitened": row(
        pg.Whitened,
        {"target": TARGET, "map": pg.FullAffine([0.0, 0.0], np.eye(2))},
        target=A_TARGET,
        map=[*OBJECT, None],
    ),
    "WithTarget": row(pg.WithTarget, {"flow": FLOW, "target": TARGET}, flow=A_FLOW, target=A_TARGET),
    "bounded": row(
        pg.bounded,
        {"low": 0.0, "high": 1.0},
        low=["a", NAN, 2.0, 1.0, INF],
        high=["a", NAN, -1.0, 1j],
        shape=[s for s in SHAPE if s is not None],
    ),
    "check_divergence": row(
        pg.check_divergence, {"flow": SOLVED, "key": KEY}, flow=A_FLOW, key=ONE_KEY, n=COUNT
    ),
    "check_gradients": row(
        pg.check_gradients,
        FLOW_AND_TARGET | {"flow": SOLVED},
        flow=[*A_FLOW, FLOW],
        target=A_FITTING_TARGET,
        key=ONE_KEY,
        n=COUNT,
        estimator=[*OBJECT, None],
        max_steps=COUNT,
        tolerance=POSITIVE,
    ),
    "clip_by_measured_norm": row(
        pg.clip_by_measured_norm, factor=[*POSITIVE, 1.0], decay=SHARE, warmup=[*FROM_ZERO, None]
    ),
    "compare_groups": row(pg.compare_groups, groups=[3, "ab", [3], None]),
    "compare_precisions": row(
        pg.compare_precisions,
        {"target": TARGET, "draws": np.zeros((3, 2))},
        target=A_FITTING_TARGET,
        draws=[*ARRAY, np.zeros((3, 5))],
    ),
    "correlation_cholesky": row(pg.correlation_cholesky, {"size": 2}, size=[*COUNT, 1], shape=SHAPE),
    "coupling_transforms": row(
        pg.coupling_transforms,
        {"shape": 2, "key": KEY},
        shape=[*SHAPE, 1],
        layers=COUNT,
        width=COUNT,
        key=ONE_KEY,
    ),
    "defended": row(
        pg.defended,
        {"flow": FLOW},
        flow=[*A_FLOW, pg.Flow(pg.DiagonalNormal.standard((2,)))],
        share=SHARE,
        factor=[*POSITIVE, 1.0],
    ),
    "evaluate": row(
        pg.evaluate,
        FLOW_AND_TARGET,
        flow=A_FLOW,
        target=A_FITTING_TARGET,
        key=ONE_KEY,
        n=COUNT,
        sample_target=FUNCTION,
        refine=COUNT,
        draws=WEIGHTED,
        divergence=OBJECT,
        target_draws=[3, "a", np.zeros((30, 3)), np.zeros((3, 2)), np.full((30, 2), NAN)],
        search=OBJECT,
    ),
    "find_experiment": row(pg.find_experiment, name=[3, None, "no such", ["toy"]]),
    "find_runs": row(pg.find_runs, paths=[3, None, "runs", [3], []]),
    "fit": row(
        pg.fit,
        {"model": FLOW, "objective": TARGET, "key": KEY, "steps": 2},
        objective=[*A_FITTING_TARGET[:4], *A_FITTING_TARGET[5:]],
        key=ONE_KEY,
        steps=FROM_ZERO,
        max_seconds=[v for v in SECONDS if v != 0.0],
        method=[*OBJECT, optax.adam(1e-3)],
        n=MAYBE_COUNT,
        estimator=[*OBJECT, pg.PathGradient],
        optimizer=[*OBJECT, "adam", optax.adam],
        state=OBJECT,
        recipe=[pg.Recipe(), 3],
    ),
    "fit (a target)": row(
        pg.fit,
        {"model": TARGET},
        model=[*A_TARGET, FLOW],
        key=[v for v in ONE_KEY if v is not None],
        max_seconds=SECONDS,
        recipe=[*OBJECT, None],
        steps=[5],
        n=[5],
        optimizer=[optax.adam(1e-3)],
    ),
    "from_numpyro": row(pg.from_numpyro, model=[*FUNCTION, None]),
    "from_pymc": row(pg.from_pymc, model=OBJECT),
    "from_pytree": row(
        pg.from_pytree,
        {"log_prob": lambda t: normal(t["a"]), "example": {"a": 0.0}},
        log_prob=[*FUNCTION, None],
        example=[{}, {"a": "b"}, None],
        constrain=FUNCTION,
        unconstrain=FUNCTION,
    ),
    "group_runs": row(pg.group_runs, runs=[3, "ab", [3], None]),
    "khat_limit": row(pg.khat_limit, n=["a", None, 1.5, NAN, -1]),
    "metropolis": row(
        pg.metropolis,
        {"log_weight": np.zeros(3), "key": KEY},
        log_weight=[*ARRAY, np.zeros((2, 2)), np.zeros(0), np.full(3, NAN)],
        key=ONE_KEY,
    ),
    "named_values": row(
        pg.named_values,
        {"target": pg.Posterior(lambda p: normal(p["a"]), {"a": pg.real()}), "x": np.zeros((3, 1))},
        x=[*ARRAY, 1.0, np.zeros((3, 2))],
    ),
    "needs_float64": row(
        pg.needs_float64,
        {"target": TARGET, "draws": np.zeros((3, 2))},
        target=A_FITTING_TARGET,
        draws=[*ARRAY, np.zeros((3, 5))],
    ),
    "ordered": row(pg.ordered, {"size": 2}, size=COUNT, shape=SHAPE),
    "positive": row(pg.positive, shape=SHAPE),
    "real": row(pg.real, shape=SHAPE),
    "reverse_kl": row(
        pg.reverse_kl,
        FLOW_AND_TARGET | {"n": 2},
        flow=A_FLOW,
        target=A_FITTING_TARGET,
        key=KEYS,
        n=COUNT,
        estimator=[*OBJECT, None, pg.PathGradient],
    ),
    "run_keys": row(pg.run_keys, seed=[*FROM_ZERO, 2**32]),
    "score_term": row(
        pg.score_term,
        {"flow": SOLVED, "key": KEY, "n": 2},
        flow=[*A_FLOW, FLOW],
        key=ONE_KEY,
        n=[*COUNT, 1],
        at_once=COUNT,
    ),
    "search_modes": row(
        pg.search_modes,
        FLOW_AND_TARGET,
        flow=A_FLOW,
        target=A_FITTING_TARGET,
        key=ONE_KEY,
        gradients=COUNT,
        points=["a", np.zeros((2, 3)), object()],
        draws=WEIGHTED,
    ),
    "session": row(
        lambda **given: pg.session(**given).__enter__(),
        {"experiment": pg.find_experiment("toy"), "options": None, "out": Path("no such")},
        experiment=[*OBJECT, None],
        out=PATH,
    ),
    "simplex": row(pg.simplex, {"size": 2}, size=[*COUNT, 1], shape=SHAPE),
    "summarise": row(
        pg.summarise,
        {"target": TARGET, "draws": _draws()},
        draws=UNEQUAL,
        probabilities=[0.5, "ab", [2.0], [NAN], ["a"]],
    ),
    "to_arviz": row(
        pg.to_arviz,
        {"target": TARGET, "draws": _draws()},
        draws=[*WEIGHTED, {"x": 3, "log_q": 3, "log_weight": 3}],
        key=[0, "key"],
    ),
    "train": row(
        pg.train,
        {"experiment": "toy"},
        experiment=[3, None, "no such"],
        out=PATH,
        checkpoint_seconds=[v for v in NOT_NEGATIVE if v is not None and v is not INF],
    ),
    "warm_start": row(
        pg.warm_start,
        {"target": TARGET, "key": KEY},
        target=A_TARGET,
        key=ONE_KEY,
        start=["a", 1j, np.zeros(3)],
        draws=["a", 1j, np.zeros((9, 3))],
        dim=[*MAYBE_COUNT, 3],
        max_seconds=[v for v in SECONDS if v != 0.0],
        cut=FROM_ZERO,
    ),
    "weighted_chunks": row(
        pg.weighted_chunks,
        FLOW_AND_TARGET | {"n": 2},
        flow=A_FLOW,
        target=A_FITTING_TARGET,
        key=ONE_KEY,
        n=COUNT,
        tell=[*FUNCTION, None],
    ),
    "weighted_draws": row(
        pg.weighted_draws,
        FLOW_AND_TARGET | {"n": 2},
        flow=A_FLOW,
        target=A_FITTING_TARGET,
        key=ONE_KEY,
        n=COUNT,
        tell=[*FUNCTION, None],
    ),
    "targets.load": row(pg.targets.load, name=[3, None, "no such"]),
}
LOG_WEIGHT = ["a", None, 1.0, np.zeros(0), np.array([1j]), object()]
for metric in (
    "elbo",
    "ess",
    "forward_ess",
    "importance_log_likelihood",
    "khat",
    "log_z",
    "psis",
    "reverse_kl",
):
    CALLS[f"metrics.{metric}"] = row(getattr(pg.metrics, metric), log_weight=LOG_WEIGHT)
