"""The parts of a default fit that can be taken out, replaced or fixed."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .._flow.flow import Flow
from .._train.warm_start.warm_start import WarmStart, warm_start
from .._words.arguments import function, instance, shown, whole_or_none
from .._words.arrays import real_array
from .._words.errors import ArgumentError, named
from .kinds import Kind
from .plan import Plan


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What `fit(target)` does, stage by stage. Every attribute has a default, which measures or estimates.

    Attributes:
        warm_start: Finds the coordinates, called as `warm_start(target, key=..., start=..., draws=...,
            max_seconds=...)`, and with `cut=...` if the plan has one; `None` for none: the flow then
            starts at a standard normal.
        start: A point to start from, for the warm start; or a dictionary of named parameters.
        draws: Draws of the target, from wherever, for the warm start; by name as well.
        flow: The flow to train, in the coordinates of the warm start, used as it is.
        kinds: Which kinds of flow to try, in this order, until one is good.
        n: Draws per step.
        first: Steps of the first round; each later one has twice as many.
        rounds: Rounds at most.
        double: Whether the target is evaluated in double precision; by default where single is too coarse.
        look_draws: Fresh draws by which a flow is judged after a round, and at the end.
        defence: Whether to add wider draws to the base where that lowers k-hat.
        mode_search: Whether to look for modes that the flow has lost, by chains that start outside its draws.
        plan: The plan of an earlier fit, to repeat it to the same bits: `kinds`, `n`, `first`, `rounds`,
            `double`, `defence` and the end of the warm start are then taken from it.
    """

    warm_start: Callable[..., WarmStart] | None = warm_start
    start: Any = None
    draws: Any = None
    flow: Flow | None = None
    kinds: Sequence[Kind] | None = None
    n: int | None = None
    first: int | None = None
    rounds: int | None = None
    double: bool | None = None
    look_draws: int | None = None
    defence: bool = True
    mode_search: bool = True
    plan: Plan | None = None

    def __post_init__(self) -> None:
        for name in ("n", "first", "rounds", "look_draws"):
            object.__setattr__(self, name, whole_or_none(name, getattr(self, name)))
        for name in ("defence", "mode_search", *(["double"] if self.double is not None else [])):
            instance(name, getattr(self, name), (bool, np.bool_), "`True` or `False`")
            object.__setattr__(self, name, bool(getattr(self, name)))
        if self.warm_start is not None:
            function("warm_start", self.warm_start, "warm_start(target, key=..., ...)")
        if self.flow is not None:
            instance("flow", self.flow, Flow, "a `Flow`")
        if self.plan is not None:
            instance("plan", self.plan, Plan, "the `plan` of an earlier fit")
        for name in ("start", "draws"):
            # By name, what they mean depends on the target.
            if getattr(self, name) is not None and not isinstance(getattr(self, name), Mapping):
                real_array(name, getattr(self, name))
        kinds = self.kinds or ()
        if not isinstance(kinds, Sequence) or not all(isinstance(kind, Kind) for kind in kinds):
            raise ArgumentError(
                f"{named('kinds')} must be a list of kinds, such as `[Kind.COUPLINGS]`, got {shown(kinds)}."
            )
        if self.flow is not None and self.kinds:
            raise ArgumentError(f"Give a {named('flow')} or {named('kinds')} of flows to try, not both.")
