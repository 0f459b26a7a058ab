"""Estimators of the gradient of `log q` at the flow's own draws."""

from abc import abstractmethod

import equinox as eqx
from jaxtyping import Array, Key

from .._flow.flow import Flow
from .._words.draw import Draw, add_solves
from .._words.tree import freeze, inner_products, key_of_each


class AbstractEstimator(eqx.Module):
    """A way to make draws whose `x` and `log_q` have true values, but the derivatives of the estimator.

    An objective that is linear in `log_q` and `log p(x)` inherits the estimator from the draws. (One that is
    not must weight them itself: along the path alone its gradient would be biased.) If `log_choice` is not
    `None`, the objective must also give it its gradient, as `ReverseKL` does.
    """

    @abstractmethod
    def draw(self, flow: Flow, *, key: Key[Array, "*batch"], n: int) -> Draw:
        """Make `n` draws in one solve. A failed solve gives NaN and is reported in `solve`.

        `key` is as in `flow.draw`: one key, or one for each draw if devices share a batch.
        """


class PathGradient(AbstractEstimator):
    r"""Differentiate `log q` along the path of the draw only: Algorithm 2 of Vaitl et al. 2022.

    The explicit dependence of $\ln q_\theta$ on $\theta$, whose derivative has mean zero and only adds
    noise, is left out:

    $$\blacktriangledown_\theta \ln q_\theta(x_\theta)
      = \nabla_x \ln q_\theta(x) \cdot \frac{\partial x_\theta}{\partial\theta}.$$

    It has the same mean as `TotalGradient`, and no variance at all where q = p (if the divergence is exact).
    """

    def draw(self, flow, *, key, n):
        draw = flow.draw("score", key=key, n=n, chunk=n)
        assert draw.log_q is not None
        assert draw.score is not None
        # The value is zero; the derivative is the score times that of the path.
        along_path = inner_products(freeze(draw.score), draw.x - freeze(draw.x))
        return Draw(draw.x, draw.log_q + along_path, None, draw.log_choice, draw.solve)


class TotalGradient(AbstractEstimator):
    """Differentiate `log q` in every way it depends on the parameters: the usual reparameterised gradient.

    It differs from the path gradient by the score term, which has mean zero; its covariance is the Fisher
    information divided by the number of draws, even where q = p.
    """

    def draw(self, flow, *, key, n):
        return flow.draw("log_q", key=key, n=n, chunk=n)


class TwoCopyGradient(AbstractEstimator):
    """Draw with live parameters, then invert with frozen ones (Agrawal, Sheldon, Domke 2020).

    The same gradient as `PathGradient`, for any flow that can be inverted, at the cost of a second solve
    and its adjoint. Kept as an independent check and as a baseline.
    """

    def draw(self, flow, *, key, n):
        draw = flow.draw("x", key=key, n=n, chunk=n)
        # With the keys of the draws, so that both directions see the same divergence noise.
        pulled = freeze(flow).pull(draw.x, keys=key_of_each(key, n))
        solve = add_solves(draw.solve, pulled.solve)
        return Draw(draw.x, pulled.log_q, None, draw.log_choice, solve)
