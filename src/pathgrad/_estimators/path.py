"""The path gradient."""

from .._draw import Draw
from .._tree import freeze, inner_products
from .abstract import AbstractEstimator


class PathGradient(AbstractEstimator):
    r"""Differentiate `log q` along the path of the draw only: Algorithm 2 of the paper.

    The explicit dependence of $\ln q_\theta$ on $\theta$, whose derivative has mean zero and only adds
    noise, is left out:

    $$\blacktriangledown_\theta \ln q_\theta(x_\theta)
      = \nabla_x \ln q_\theta(x) \cdot \frac{\partial x_\theta}{\partial\theta}.$$

    Same mean as `TotalGradient`, and no variance at all where q = p (with a divergence without noise).
    """

    def draw(self, flow, *, key, n):
        draw = flow.draw("score", key=key, n=n, chunk=n)
        assert draw.log_q is not None
        assert draw.score is not None
        # Value zero; its derivative is the score times that of the path.
        along_path = inner_products(freeze(draw.score), draw.x - freeze(draw.x))
        return Draw(draw.x, draw.log_q + along_path, None, draw.log_choice, draw.solve)
