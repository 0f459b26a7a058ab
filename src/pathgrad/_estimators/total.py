"""The total gradient."""

from .abstract import AbstractEstimator


class TotalGradient(AbstractEstimator):
    """Differentiate `log q` in every way it depends on the parameters: the usual reparameterised gradient.

    It differs from the path gradient by the score term, which has mean zero, and the Fisher information
    divided by the number of draws as covariance, even where q = p.
    """

    def draw(self, flow, *, key, n):
        return flow.draw("log_q", key=key, n=n, chunk=n)
