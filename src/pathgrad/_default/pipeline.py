"""Fit any density, stage by stage: coordinates, flow, rounds of training, defence, verdict."""

import dataclasses
import math
import sys
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Key

from .._flow.defended import defended
from .._flow.flow import Flow
from .._flow.whitened import Whitened
from .._ingredients.bases import StandardNormal
from .._ingredients.precise import Precise, compare_precisions
from .._ingredients.target import Target
from .._numbers.evaluate import evaluate
from .._train.row import Row
from .._train.warm_start.warm_start import WarmStart
from .._words.errors import ArgumentError, UserError, named
from .centred import Centred
from .clock import Clock
from .contender import Contender, Look, Round, look
from .kinds import Kind, first_kind, other_kinds
from .plan import Plan
from .recipe import Recipe
from .result import Shortfall, TargetFit

Tell = Callable[[str, float], None]  # what is being done, and the share of the time that is used up

# Shares of the time.
_WARM_SHARE = 0.3  # at most, for the warm start
_FIRST_SHARE = 0.15  # of what is left then, for the target's gradients in a first round
_EVALUATION = 0.1  # kept for the evaluation
_COMPARED = 2.0  # how much longer than the first kind another may take to be tried

_GOOD = 0.95  # ESS after the first round below which other kinds are tried
_DEFENDED, _STILL_GOOD = 0.98, 0.96  # ESS before and after wider draws are added
# Up to so many dimensions: draws of a step, and steps of the first round.
_SIZES = (64, 512, 1500), (400, 256, 1500), (sys.maxsize, 64, 300)
_FEWEST, _LONGEST_STEP = 64, 0.03  # draws of a step, and seconds of a step, for targets that are slow
_SHORTEST = 100  # steps of the first round, for targets that are slow
_PROBES = 64  # draws by which precisions are compared
_START, _FLOWS, _CHECK = range(3)  # folded into the key


class Pipeline:
    """The stages of a fit, and what they have found so far."""

    def __init__(self, target: Target, recipe: Recipe, clock: Clock, key: Key[Array, ""], tell: Tell) -> None:
        self.target, self.recipe, self.clock, self.key = target, recipe, clock, key
        self.shape = shape_of(target)
        self.dim = math.prod(self.shape)
        self.rounds: list[Round] = []
        self._tell = tell

    def tell(self, text: str) -> None:
        """Report what is being done."""
        self._tell(text, min(1.0, self.clock.spent / self.clock.limit))

    def run(self) -> TargetFit:
        """Run all stages."""
        self.tell("warm start")
        start = self.warm_start()
        double, inner = self.coordinates(start)
        best = self.train(inner, start)
        flow, is_defended = self.defend(best, inner)
        self.tell("evaluating")
        found = evaluate(flow, inner, key=jr.fold_in(self.key, _CHECK), n=best.draws)
        centre = 0.0 if start is None else start.elbo
        found = dataclasses.replace(found, elbo=found.elbo + centre, log_z=found.log_z + centre)
        whole = flow if start is None else Flow(flow.base, [*flow.transforms, start.map])
        plan = Plan(best.kind, best.n, best.first, best.kept, double, is_defended)
        return TargetFit(
            flow=whole,
            target=self.target,
            evaluation=found,
            start=start,
            plan=plan,
            rounds=self.rounds,
            history=best.history,
            shortfall=self.shortfall(best, start),
            seconds=self.clock.spent,
            key=self.key,
        )

    def warm_start(self) -> WarmStart | None:
        """Find the coordinates in which the target is nearly standard normal."""
        recipe = self.recipe
        if recipe.warm_start is None:
            return None
        started = recipe.warm_start(
            self.target,
            key=jr.fold_in(self.key, _START),
            start=recipe.start,
            draws=recipe.draws,
            max_seconds=_WARM_SHARE * self.clock.limit,
        )
        if not started.outcome.is_usable:
            raise UserError(f"There is nothing to fit: {started.outcome.text}.")
        return started

    def coordinates(self, start: WarmStart | None) -> tuple[bool, Target]:
        """Return the target in those coordinates, near zero, and in as much precision as it needs."""
        target = self.target if start is None else Whitened(self.target, start.map)
        centre = 0.0 if start is None else start.elbo
        if self.recipe.plan is not None:
            double = self.recipe.plan.double
        else:
            z = jr.normal(jr.fold_in(self.key, _CHECK), (_PROBES, *self.shape))
            double = _is_single() and not compare_precisions(Centred(target, centre), z).is_enough
        inner = Centred(target, centre)
        return double, Precise(inner) if double else inner

    def train(self, inner: Target, start: WarmStart | None) -> Contender:
        """Train until a flow is good, or time is up; return the best contender."""
        if self.recipe.plan is not None:
            return self._repeated(self.recipe.plan, inner, start)
        contenders: list[Contender] = []
        for kind in self._kinds():
            if contenders and not self._has_time_for(_COMPARED * contenders[0].seconds):
                break
            contenders.append(self._contender(kind, inner, start, *self._sizes(start)))
            if self._advance(contenders[-1]).ess > _GOOD:
                break
        best = max(contenders, key=lambda c: c.elbo)
        while not self._is_done(best) and self._has_time_for(best.next_seconds):
            self._advance(best)
        return best

    def _repeated(self, plan: Plan, inner: Target, start: WarmStart | None) -> Contender:
        """Train as planned, without looking."""
        contender = self._contender(plan.kind, inner, start, plan.n, plan.first)
        for _ in range(plan.rounds):
            self._train_round(contender)
        contender.look()
        return contender

    def _kinds(self) -> list[Kind | None]:
        """Return the kinds of flow to try, in order."""
        if self.recipe.flow is not None:
            return [None]
        return list(self.recipe.kinds or [first_kind(self.dim), *other_kinds(self.dim)])

    def _sizes(self, start: WarmStart | None) -> tuple[int, int]:
        """Return the draws of a step, and the steps of the first round."""
        n, first = next((n, first) for limit, n, first in _SIZES if self.dim <= limit)
        if start is not None and start.gradients:
            each = start.seconds / start.gradients  # time of a gradient of the target, at most
            n = max(_FEWEST, min(n, int(_LONGEST_STEP / each)))
            first = max(_SHORTEST, min(first, int(_FIRST_SHARE * self.clock.left / (n * each))))
        return self.recipe.n or n, self.recipe.first or first

    def _contender(
        self, kind: Kind | None, inner: Target, start: WarmStart | None, n: int, first: int
    ) -> Contender:
        number = 0 if kind is None else 1 + list(Kind).index(kind)
        key, flow_key = jr.split(jr.fold_in(jr.fold_in(self.key, _FLOWS), number))
        if kind is None:
            assert self.recipe.flow is not None
            flow = self.recipe.flow
        else:
            flow = kind.flow(self.shape, None if start is None else start.map, key=flow_key)
        return Contender(kind, flow, inner, n, first, key, self.recipe.look_draws)

    def _advance(self, contender: Contender) -> Look:
        """Train a contender for one more round, look at it, and write it down."""
        began = self.clock.spent
        self._train_round(contender)
        self.tell(f"{contender.name}, looking")
        seen = contender.look()
        contender.seconds += self.clock.spent - began
        self.rounds.append(Round(contender.kind, contender.rounds, contender.steps, seen, self.clock.spent))
        return seen

    def _train_round(self, contender: Contender) -> None:
        def tell(row: Row) -> None:
            ess = "" if row.value("ess") is None else f", ESS {row.value('ess'):.1%}"
            self.tell(f"{contender.name}, round {contender.rounds + 1}, step {row.step}{ess}")

        self.tell(f"{contender.name}, compiling")
        contender.train_round(tell)

    def _is_done(self, contender: Contender) -> bool:
        """Say whether more rounds are not wanted, or would not help."""
        most = self.recipe.rounds
        is_enough = most is not None and contender.rounds >= most
        return is_enough or contender.failed or contender.is_good

    def _has_time_for(self, seconds: float) -> bool:
        return seconds < self.clock.left - _EVALUATION * self.clock.limit

    def defend(self, best: Contender, inner: Target) -> tuple[Flow, bool]:
        """Add wider draws to the base, if that makes the tail of the weights lighter."""
        plan = self.recipe.plan
        if plan is not None:
            return (defended(best.best) if plan.defended else best.best), plan.defended
        seen, can_be = best.seen, isinstance(best.best.base, StandardNormal)
        is_wanted = self.recipe.defence and can_be and seen is not None
        if not is_wanted or seen.ess < _DEFENDED or seen.has_light_tail:
            return best.best, False
        self.tell("trying a defensive base")
        wider = defended(best.best)
        after = look(wider, inner, key=jr.fold_in(self.key, _CHECK), n=best.draws)
        if after.khat < seen.khat and after.ess > _STILL_GOOD:
            return wider, True
        return best.best, False

    def shortfall(self, best: Contender, start: WarmStart | None) -> Shortfall:
        """Return what kept the flow from being good, as far as can be told."""
        if best.is_good or (best.seen is not None and best.seen.ess > _GOOD):
            return Shortfall.NONE
        if best.failed:
            return Shortfall.DIVERGED
        if self.clock.limit < math.inf and not self._has_time_for(best.next_seconds):
            return Shortfall.TIME
        return Shortfall.FLOW


def shape_of(target: Any) -> tuple[int, ...]:
    """Return the shape of a target's points; raise if it does not say."""
    shape = getattr(target, "shape", None)
    if isinstance(shape, tuple):
        return shape
    kind = type(target).__name__
    if callable(target) and not hasattr(target, "log_prob"):
        raise ArgumentError(
            f"The {named('target')} is a bare function, which does not say how many coordinates a point has. "
            f"Write `LogDensity({getattr(target, '__name__', 'function')}, shape=(dim,))`."
        )
    raise ArgumentError(
        f"The {named('target')}, a {kind}, does not say what shape a point has. Give it an attribute "
        "`shape`, or wrap its log density: `LogDensity(target.log_prob, shape=(dim,))`."
    )


def _is_single() -> bool:
    return jnp.result_type(float) == jnp.float32
