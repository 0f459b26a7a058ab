"""Flows: a base followed by transforms, a density that can be sampled and evaluated."""

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from .._ingredients.bases import AbstractBase, floating
from .._words.arguments import instance, one_of, shown, whole, whole_or_none
from .._words.draw import Draw, SolveInfo, Tally, add_solves, merge_chunks
from .._words.errors import ArgumentError, named
from .._words.keys import any_keys, one_key
from .._words.outcome import Outcome
from .._words.text import sentence
from .._words.tree import freeze, key_of_each, map_chunks, number_of_draws, one_draw, over_draws
from .transforms import AbstractTransform

Carry = Literal["x", "log_q", "score"]


class Pulled(NamedTuple):
    r"""Points that were mapped back to the base.

    Attributes:
        z: The points of the base that they come from.
        log_q: $\ln q$ of the original points, normalised.
        solve: Cost and outcome of the ODE solves, `None` if there were none.
    """

    z: Float[Array, "batch *event"]
    log_q: Float[Array, " batch"]
    solve: SolveInfo | None


class Flow(eqx.Module):
    """A normalised density: draws of a base, mapped by transforms in order.

    Every draw has its own key, split from the one given. So a draw does not depend on how many others are
    made with it, on chunks, or on devices (except through the step sizes that an adaptive integrator
    chooses for a whole chunk).

    Attributes:
        base: The distribution that draws start from.
        transforms: The maps, applied in order.
    """

    base: AbstractBase
    transforms: tuple[AbstractTransform, ...]

    def __init__(self, base: AbstractBase, transforms: Iterable[AbstractTransform] = ()) -> None:
        """Compose a flow. Without transforms it is the base itself."""
        if isinstance(transforms, AbstractTransform) or not isinstance(transforms, Iterable):
            raise ArgumentError(
                f"{named('transforms')} must be a list of transforms, such as `[CNF(field)]`, got "
                f"{shown(transforms)}."
            )
        self.base, self.transforms = base, tuple(transforms)

    def __check_init__(self):
        instance("base", self.base, AbstractBase, "a base, such as `StandardNormal((2,))`")
        for transform in self.transforms:
            instance(
                "transforms", transform, AbstractTransform, "a list of transforms, such as `[CNF(field)]`"
            )
        for transform in self.transforms:
            transform.check(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one point."""
        return one_draw(self.base).shape

    @property
    def is_noisy(self) -> bool:
        """Whether `log_prob` is only estimated (a `Hutchinson` divergence)."""
        return any(transform.is_noisy for transform in self.transforms)

    @property
    def is_solved(self) -> bool:
        """Whether any of its transforms uses an ODE solver."""
        return any(transform.is_solved for transform in self.transforms)

    @property
    def draws_at_once(self) -> int:
        """Default number of draws solved at a time: few enough to bound the memory."""
        # About 2^18 numbers of state: hidden layers take tens of times that, still below a gigabyte.
        return min(8192, max(64, 2**18 // max(1, math.prod(self.shape))))

    def sample(
        self, *, key: Key[Array, ""], n: int, chunk: int | None = None
    ) -> Float[Array, "batch *event"]:
        """Draw `n` points. No density is computed, so this is the cheapest way to get them."""
        return self.draw("x", key=key, n=n, chunk=chunk, throw=True).x

    def sample_and_log_prob(
        self, *, key: Key[Array, ""], n: int, chunk: int | None = None
    ) -> tuple[Float[Array, "batch *event"], Float[Array, " batch"]]:
        """Draw `n` points with their log density, both with their total derivative."""
        draw = self.draw("log_q", key=key, n=n, chunk=chunk, throw=True)
        assert draw.log_q is not None
        return draw.x, draw.log_q

    def sample_with_score(self, *, key: Key[Array, ""], n: int, chunk: int | None = None) -> Draw:
        """Draw `n` points with log density and score; only `x` depends on the parameters.

        Differentiating `x` gives the path derivative; `log_q` and `score` are constants.
        """
        return self.draw("score", key=key, n=n, chunk=chunk, throw=True)

    def draw(
        self,
        carry: Carry,
        *,
        key: Key[Array, "*batch"],
        n: int,
        chunk: int | None = None,
        throw: bool = False,
    ) -> Draw:
        """Draw `n` points, alone or together with their log density and score.

        Args:
            carry: `"x"` for points alone, `"log_q"` for log densities too, `"score"` for these and scores.
            key: Source of all noise; or one key for each draw, for devices that share a batch.
            n: Number of draws. With `PerDraw` leaves it must be their length.
            chunk: Draws solved at a time; the default bounds the memory. `n` for one solve.
            throw: Whether a failed solve raises. If not, its draws are NaN and `solve` shows why.
        """
        one_of("carry", carry, ("x", "log_q", "score"))
        key, n, chunk = any_keys(key), whole("n", n), whole_or_none("chunk", chunk)
        return _drawn(self, carry, key, n, chunk, throw=bool(throw))

    def log_prob(
        self,
        x: Float[Array | np.ndarray, "batch *event"],
        *,
        key: Key[Array, ""] | None = None,
        chunk: int | None = None,
        throw: bool = True,
    ) -> Float[Array, " batch"]:
        """Return the log density of given points, by following the transforms backwards.

        Args:
            x: Points, batch axis first.
            key: Needed for the noise of a `Hutchinson` divergence. The key of `draw` repeats its noise.
            chunk: Points solved at a time; the default bounds the memory.
            throw: Whether a failed solve raises; if not, its densities are NaN.
        """
        x, chunk = floating(x, "x"), whole_or_none("chunk", chunk)
        if not x.ndim or x.shape[1:] != self.shape:
            raise ValueError(
                f"`log_prob` takes `x`, a batch of points of shape {self.shape}, got {x.shape}. "
                "The batch axis comes first: use `x[None]` for one point."
            )
        if key is None:
            if self.is_noisy:
                raise ValueError(
                    "This flow estimates its density with noise (`Hutchinson`): pass `key=...`, or use "
                    "`flow.exact().log_prob(x)`."
                )
            key = jr.key(0)
        return _pulled(self, x, one_key(key), chunk, throw=bool(throw))

    def exact(self) -> "Flow":
        """Return the same flow with its density computed without noise, for evaluation."""
        return Flow(self.base, [transform.exact() for transform in self.transforms])

    def refined(self, factor: int = 2) -> "Flow":
        """Return the same flow, solved as accurately as with `factor` times the steps."""
        factor = whole("factor", factor)
        return Flow(self.base, [transform.refined(factor) for transform in self.transforms])

    def tallied(self, tally: Tally | None) -> "Flow":
        """Return the same flow, with the field evaluations of its backward pass counted in a tally."""
        if tally is None:
            return self
        return Flow(self.base, [transform.tallied(tally) for transform in self.transforms])

    def push(self, carry: Carry, *, keys: Key[Array, " batch"]) -> Draw:
        """Make one draw for each key; `carry` is as in `draw`.

        This is what `draw` does with each chunk: not compiled, in one solve, without raising. Use it to write
        your own estimators. `pull` with the same keys sees the same noise.
        """
        x, log_choice = over_draws(lambda b, k: b.draw(key=jr.fold_in(k, 0)), self.base, keys)
        draw = Draw(x, log_choice=log_choice)
        if carry == "log_q":
            draw = Draw(x, over_draws(lambda b, x: b.log_prob(x), self.base, x), None, log_choice)
        if carry == "score":
            value_and_score = jax.value_and_grad(lambda x, b: b.log_prob(x))
            # Along the path, density and score are constants, not functions of the parameters.
            results = over_draws(lambda b, x: value_and_score(x, b), freeze(self.base), freeze(x))
            log_q, score = freeze(results)
            draw = Draw(x, log_q, score, log_choice)
        for i, transform in enumerate(self.transforms):
            draw = transform.push(draw, keys=_noise_keys(keys, i))
        return draw

    def pull(self, x: Float[Array, "batch *event"], *, keys: Key[Array, " batch"]) -> Pulled:
        """Map points back to the base, each with a key for divergence noise.

        This is what `log_prob` does with each chunk: not compiled, in one solve, without raising.
        """
        log_det = jnp.zeros(x.shape[0], x.dtype)
        solve = None
        for i, transform in reversed(list(enumerate(self.transforms))):
            x, more, info = transform.pull(x, keys=_noise_keys(keys, i))
            log_det = log_det + more
            solve = add_solves(solve, info)
        log_q = over_draws(lambda b, z: b.log_prob(z), self.base, x) - log_det
        return Pulled(x, log_q, solve)

    def check_draws(self, n: int) -> None:
        """Raise if the flow has `PerDraw` leaves, but not for so many draws."""
        required = number_of_draws(self)
        if required is not None and required != n:
            raise ValueError(
                f"This flow has `PerDraw` leaves for {required} draws, and {n} were asked for. "
                "Repeat the leaves to get several draws of each."
            )


# Compiled functions take what has been checked: they would make an array of a number from NumPy.
@eqx.filter_jit
def _drawn(
    flow: Flow, carry: Carry, key: Key[Array, "*batch"], n: int, chunk: int | None, *, throw: bool
) -> Draw:
    flow.check_draws(n)
    keys = key_of_each(key, n)
    draw = map_chunks(lambda f, keys: f.push(carry, keys=keys), chunk or flow.draws_at_once, flow, keys)
    if draw.solve is not None:
        draw = eqx.tree_at(lambda d: d.solve, draw, merge_chunks(draw.solve))
    return _raise_if_failed(draw, draw.solve) if throw else draw


@eqx.filter_jit
def _pulled(
    flow: Flow, x: Float[Array, "batch *event"], key: Key[Array, ""], chunk: int | None, *, throw: bool
) -> Float[Array, " batch"]:
    flow.check_draws(x.shape[0])
    keys = jr.split(key, x.shape[0])
    pulled = map_chunks(lambda f, x, k: f.pull(x, keys=k), chunk or flow.draws_at_once, flow, x, keys)
    if pulled.solve is None or not throw:
        return pulled.log_q
    return _raise_if_failed(pulled.log_q, merge_chunks(pulled.solve))


def _noise_keys(keys: Key[Array, " batch"], transform: int) -> Key[Array, " batch"]:
    """Return the keys of one transform's noise: the same in both directions."""
    return over_draws(lambda number, key: jr.fold_in(key, number), transform + 1, keys)


def _raise_if_failed(tree, solve: SolveInfo | None):
    if solve is None:
        return tree
    messages = [sentence(outcome.message) for outcome in Outcome]
    return eqx.branched_error_if(tree, ~solve.succeeded, solve.outcome, messages)
