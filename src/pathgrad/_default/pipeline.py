"""Fit any density, stage by stage: coordinates, flow, rounds of training, defence, verdict."""

import dataclasses
import math
import sys
from collections.abc import Callable

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Key

from .._flow.defended import defended
from .._flow.flow import Flow
from .._ingredients.bases import StandardNormal
from .._ingredients.inspection import inspect_target, shape_of
from .._ingredients.precise import compare_precisions
from .._ingredients.target import Target
from .._numbers.evaluate import Evaluation, evaluate
from .._numbers.verdict import Reason
from .._train.row import Row
from .._train.warm_start.outcome import StartOutcome
from .._train.warm_start.warm_start import WarmStart
from .._words.errors import ArgumentError, UserError, named
from .clock import Clock
from .contender import Contender, Round, draws_of_a_look
from .inside import Inside
from .kinds import Kind, first_kind, new_flow, other_kinds, with_map
from .looks import Look, gains_by_defence
from .modes import gradients_for, seconds_of, with_search
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
_STALLED = 0.1  # share of the KL divergence that a round should gain
_POOR = 0.5  # ESS below which an unfinished warm start is blamed
# Up to so many dimensions: draws of a step, and steps of the first round.
_SIZES = (64, 512, 1500), (400, 256, 1500), (sys.maxsize, 64, 300)
_FEWEST, _LONGEST_STEP = 64, 0.03  # draws of a step, and seconds of a step, for targets that are slow
_ROUND_SHARE, _SHORTENED = 0.8, 0.5  # of the time left: most for a first round, and what it is shortened to
_SHORTEST = 100  # steps of the first round, for targets that are slow
_LOOK_SHARE, _FEWEST_LOOKED_AT = 0.05, 1000  # draws of a look, for targets that are slow
_SHORTEST_FIT = _SHORTEST * _FEWEST + 2 * _FEWEST_LOOKED_AT  # gradients
_MOST_REFINED = 4  # largest multiple of the solver's steps
_LARGEST = 1e14  # log density that double precision resolves to hundredths of a nat
_PROBES = 64  # draws by which precisions are compared
_START, _CHECK, _EVALUATE, _SEARCH = range(4)  # folded into the key
_MOST_ROUNDS = 16  # so that a number of steps fits into 32 bits


class Pipeline:
    """The stages of a fit, and what they have found so far.

    Attributes:
        clock: The time that it may take.
        start: What the warm start found; `None` before it, and if there is none.
        rounds: What each round of training led to, in order.
    """

    def __init__(self, target: Target, recipe: Recipe, clock: Clock, key: Key[Array, ""], tell: Tell) -> None:
        self.target, self.recipe, self.clock, self.key = target, recipe, clock, key
        # As `run_keys` in a run directory: for flows, for training, and for all else.
        self._flow_key, self._training_key, self._other_key = jr.split(key, 3)
        self.shape = shape_of(target)
        self.dim = math.prod(self.shape)
        self.start: WarmStart | None = None
        self.rounds: list[Round] = []
        self._tell = tell

    def tell(self, text: str) -> None:
        """Report what is being done."""
        self._tell(text, min(1.0, self.clock.spent / self.clock.limit))

    def run(self) -> TargetFit:
        """Run all stages."""
        plan = self.recipe.plan
        best = self.choose() if plan is None else self._repeated(plan)
        if plan is None:
            while not self._is_done(best) and self._has_time_to(best.rounds + 1, best):
                self._advance(best)
        flow, is_defended = self.defend(best)
        flow, found = self.evaluate(flow, best)
        found = self.searched(flow, found, best)
        return TargetFit(
            flow=flow,
            target=self.target,
            evaluation=found,
            start=self.start,
            plan=self._plan(best, is_defended=is_defended),
            rounds=self.rounds,
            history=best.history,
            shortfall=self.shortfall(best, found),
            seconds=self.clock.spent,
            key=self.key,
        )

    def _plan(self, best: Contender, *, is_defended: bool) -> Plan:
        cut = None if self.start is None else self.start.cut
        decided = best.n, best.first, best.kept, best.inside.is_double, is_defended
        return Plan(best.kind, *decided, cut)

    def choose(self) -> Contender:
        """Find coordinates, train contenders for a round each, and return the best."""
        inside = self._begun(is_double=self.recipe.double)
        contenders, sizes = list[Contender](), self._sizes()
        kinds = self._kinds()
        for kind in kinds:
            if contenders and not self._has_time_for(_COMPARED * contenders[0].seconds):
                break
            contenders.append(self._paced(self._contender(kind, inside, *sizes)))
            seen = self._advance(contenders[-1])
            if len(kinds) > 1:  # before others are tried
                seen = self._while_cheap(contenders[-1], seen)
            if seen.ess > _GOOD:
                break
        return max(contenders, key=lambda c: c.elbo)

    def _while_cheap(self, contender: Contender, seen: Look) -> Look:
        """Train on until the flow is good, or a round would cost more than the flow has cost so far."""
        while seen.ess <= _GOOD and not self._is_done(contender):
            seconds = contender.seconds_to(contender.rounds + 1)
            if seconds > contender.seconds or not self._has_time_for(seconds):
                break
            seen = self._advance(contender)
        return seen

    def rounds_that_fit(self, contender: Contender) -> int:
        """Return how many rounds of a contender, those over included, end within the time."""
        rounds = max(1, contender.rounds)
        most = self.recipe.rounds or _MOST_ROUNDS
        while rounds < most and self._has_time_to(rounds + 1, contender):
            rounds += 1
        return rounds

    def _repeated(self, plan: Plan) -> Contender:
        """Train as planned."""
        contender = self._contender(plan.kind, self._begun(is_double=plan.double), plan.n, plan.first)
        for _ in range(plan.rounds):
            self._advance(contender)
        return contender

    def _begun(self, *, is_double: bool | None) -> Inside:
        """Find coordinates, and return the target in them, as precise as it must be."""
        inspect_target(self.target, self.shape)
        self.start = self.warm_start()
        centre = 0.0 if self.start is None else self.start.elbo
        inside = Inside(self.target, self.start is not None, centre, is_double=bool(is_double))
        if is_double is not None:
            return inside
        to_target = [] if self.start is None else [self.start.map]
        _, single = inside.of(Flow(StandardNormal(self.shape), to_target))
        z = jr.normal(self._check_key, (_PROBES, *self.shape))
        is_double = _is_single() and not compare_precisions(single, z).is_enough
        return dataclasses.replace(inside, is_double=is_double)

    def warm_start(self) -> WarmStart | None:
        """Find the coordinates in which the target is nearly standard normal."""
        recipe = self.recipe
        if recipe.warm_start is None:
            return None
        self.tell("warm start")
        plan = recipe.plan
        started = recipe.warm_start(
            self.target,
            key=jr.fold_in(self._other_key, _START),
            start=recipe.start,
            draws=recipe.draws,
            max_seconds=_WARM_SHARE * self.clock.limit if plan is None else None,
            **({} if plan is None or plan.cut is None else {"cut": plan.cut}),
        )
        if started.outcome is StartOutcome.TOO_SLOW:
            self._refuse_pace(started.pace)
        if not started.outcome.is_usable:
            why = started.outcome.text
            raise UserError(f"There is nothing to fit: {why}{'' if why.endswith(('?', '.)')) else '.'}")
        if abs(started.elbo) > _LARGEST:
            raise UserError(
                f"The log density is about {started.elbo:.1g}, where not even double precision can tell "
                "differences of one nat. Leave out the constant in it."
            )
        return started

    @property
    def _check_key(self) -> Key[Array, ""]:
        return jr.fold_in(self._other_key, _CHECK)

    def _kinds(self) -> list[Kind | None]:
        """Return the kinds of flow to try, in order."""
        if self.recipe.flow is not None:
            return [None]
        return list(self.recipe.kinds or [first_kind(self.dim), *other_kinds(self.dim)])

    def _sizes(self) -> tuple[int, int]:
        """Return the draws of a step, and the steps of the first round."""
        n, first = next((n, first) for limit, n, first in _SIZES if self.dim <= limit)
        start = self.start
        if start is not None and start.pace > 0:  # and known
            n = max(_FEWEST, min(n, int(_LONGEST_STEP / start.pace)))
            first = int(max(_SHORTEST, min(first, _FIRST_SHARE * self.clock.left / (n * start.pace))))
            # Compiling alone may have used up the time, which is not the target's fault.
            if _SHORTEST_FIT * start.pace > max(self.clock.left, 0.5 * self.clock.limit):
                self._refuse_pace(start.pace)
        return self.recipe.n or n, self.recipe.first or first

    def _refuse_pace(self, each: float) -> None:
        """Refuse a target that is too slow for the shortest training and evaluation."""
        raise UserError(
            f"One gradient of the target takes {each:.2g} s, so that the shortest fit would take "
            f"{1.5 * _SHORTEST_FIT * each + self.clock.spent:.0f} s. Give it more {named('max_seconds')}, or "
            "make the density faster: does it loop in Python, or compute the same thing for each point?"
        )

    def _look_draws(self, n: int) -> int:
        """Return the draws of a look: fewer where the target is so slow that it would take long."""
        start, most = self.start, draws_of_a_look(n)
        if start is None or not start.pace > 0:
            return most
        affordable = _LOOK_SHARE * self.clock.limit / start.pace
        return int(max(_FEWEST_LOOKED_AT, min(most, affordable)))

    def _contender(self, kind: Kind | None, inside: Inside, n: int, first: int) -> Contender:
        to_target = None if self.start is None else self.start.map
        if kind is not None:
            flow = new_flow(kind, self.shape, to_target, key=self._flow_key)
        else:
            if self.recipe.flow is None:
                raise ArgumentError(
                    f"This {named('plan')} is of a flow of your own: give the same {named('flow')} again."
                )
            flow = with_map(self.recipe.flow, to_target)
        look_draws = self.recipe.look_draws or self._look_draws(n)
        return Contender(kind, flow, inside, n, first, look_draws, self._training_key)

    def _paced(self, contender: Contender) -> Contender:
        """Return a contender whose first round fits into the time, by the pace of its first steps."""
        if self.recipe.first is not None or self.clock.limit == math.inf:
            return contender
        began, first = self.clock.spent, contender.first
        self.tell(f"{contender.name}, compiling")
        each = contender.try_out()
        compiling = contender.trainer.compile_seconds
        left = self.clock.left - compiling
        shorter = int(max(_SHORTEST, min(first, _SHORTENED * left / each)))
        is_long, gain = first * each > _ROUND_SHARE * left, (first - shorter) * each
        if is_long and gain > 2 * compiling and not contender.failed:  # it has to be compiled once more
            contender = self._contender(contender.kind, contender.inside, contender.n, shorter)
        contender.seconds += self.clock.spent - began
        return contender

    def _advance(self, contender: Contender) -> Look:
        """Train a contender for one more round, look at it, and write it down."""

        def tell(row: Row) -> None:
            ess = "" if row.value("ess") is None else f", ESS {row.value('ess'):.1%}"
            self.tell(f"{contender.name}, round {row.value('round'):.0f}, step {row.step}{ess}")

        began = self.clock.spent
        self.tell(f"{contender.name}, {'training' if contender.steps else 'compiling'}")
        seen = contender.advance(tell)
        contender.seconds += self.clock.spent - began
        self.rounds.append(Round(contender.kind, contender.rounds, contender.steps, seen, self.clock.spent))
        return seen

    def _is_done(self, contender: Contender) -> bool:
        """Say whether more rounds are not wanted, or would not help."""
        most = self.recipe.rounds
        is_enough = most is not None and contender.rounds >= most
        return is_enough or contender.failed or contender.is_good

    def _has_time_for(self, seconds: float) -> bool:
        limit = self.clock.limit
        return limit == math.inf or seconds < self.clock.left - _EVALUATION * limit

    def _has_time_to(self, rounds: int, contender: Contender) -> bool:
        return self._has_time_for(contender.seconds_to(rounds))

    def defend(self, best: Contender) -> tuple[Flow, bool]:
        """Add wider draws to the base, if that makes the tail of the weights lighter."""
        flow, plan = best.best, self.recipe.plan
        if plan is not None:
            is_wanted = plan.defended
        else:
            self.tell("trying a defensive base")
            is_wanted = self.recipe.defence and gains_by_defence(
                flow, best.inside, best.seen, key=self._check_key, n=best.look_draws
            )
        return (defended(flow) if is_wanted else flow), is_wanted

    def evaluate(self, flow: Flow, best: Contender, refine: int = 1) -> tuple[Flow, Evaluation]:
        """Evaluate a flow; if its solver is too coarse for that, the same flow with more steps."""
        self.tell("evaluating")
        finer, key = flow.refined(refine), jr.fold_in(self._other_key, _EVALUATE)
        found = evaluate(*best.inside.of(finer), key=key, n=best.look_draws)
        is_coarse = {Reason.COARSE_SOLVER, Reason.ESS_MOVES} & set(found.verdict.reasons)
        if is_coarse and refine < _MOST_REFINED:
            return self.evaluate(flow, best, 2 * refine)
        return finer, best.inside.shifted(found)

    def searched(self, flow: Flow, found: Evaluation, best: Contender) -> Evaluation:
        """Look for modes that a flow has lost, if there is time for it."""
        # By what a plan knows, so that it is repeated.
        gradients = gradients_for(best.n * best.first * (2 ** max(1, best.kept) - 1))
        if not self.recipe.mode_search or seconds_of(gradients, self.start) > self.clock.left:
            return found
        self.tell("looking for lost modes")
        key = jr.fold_in(self._other_key, _SEARCH)
        return with_search(found, flow, best.inside, self.start, key=key, gradients=gradients)

    def shortfall(self, best: Contender, found: Evaluation) -> Shortfall:
        """Return what kept the flow from being good, as far as can be told."""
        if best.is_good or found.ess > _GOOD:
            return Shortfall.NONE
        if best.failed:
            return Shortfall.of_failure(best.failure)
        if self.start is not None and self.start.outcome is not StartOutcome.CONVERGED and found.ess < _POOR:
            return Shortfall.START
        if self._has_stalled(best, found):
            return Shortfall.FLOW
        if self.recipe.plan is not None or best.rounds == self.recipe.rounds:
            return Shortfall.ROUNDS
        if self.clock.limit < math.inf and not self._has_time_to(best.rounds + 1, best):
            return Shortfall.TIME
        return Shortfall.FLOW

    def _has_stalled(self, best: Contender, found: Evaluation) -> bool:
        """Say whether the last round of training gained little of what is left to gain."""
        elbos = [one.look.elbo for one in self.rounds if one.kind is best.kind]
        return len(elbos) > 1 and elbos[-1] - max(elbos[:-1]) < _STALLED * found.kl


def _is_single() -> bool:
    return jnp.result_type(float) == jnp.float32
