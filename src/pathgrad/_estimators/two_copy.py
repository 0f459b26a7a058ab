"""The path gradient by two copies of the flow."""

from .._draw import Draw, add_solves
from .._tree import freeze, key_of_each
from .abstract import AbstractEstimator


class TwoCopyGradient(AbstractEstimator):
    """Draw with live parameters, then invert with frozen ones (Agrawal, Sheldon, Domke 2020).

    The same gradient as `PathGradient`, for flows of which nothing is known but how to invert them, at
    the price of a second solve and its adjoint. Kept as an independent check and as a baseline.
    """

    def draw(self, flow, *, key, n):
        draw = flow.draw("x", key=key, n=n, chunk=n)
        # The keys of the draws, so that both directions see the same divergence noise.
        pulled = freeze(flow).pull(draw.x, keys=key_of_each(key, n))
        solve = add_solves(draw.solve, pulled.solve)
        return Draw(draw.x, pulled.log_q, None, draw.log_choice, solve)
