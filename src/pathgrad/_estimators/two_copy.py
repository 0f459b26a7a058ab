"""The path gradient by two copies of the flow."""

from .._draw import Draw
from .._tree import freeze
from .abstract import AbstractEstimator


class TwoCopyGradient(AbstractEstimator):
    """Draw with live parameters, then invert with frozen ones (Agrawal, Sheldon, Domke 2020).

    The same gradient as `PathGradient`, for flows of which nothing is known but how to invert them, at
    the price of a second solve and its adjoint. Kept as an independent check and as a baseline.
    """

    def draw(self, flow, *, key, n):
        draw = flow.draw("x", key=key, n=n, chunk=n)
        log_q = freeze(flow).log_prob(draw.x, key=key, chunk=n, throw=False)
        return Draw(draw.x, log_q, None, draw.log_choice, draw.solve)
