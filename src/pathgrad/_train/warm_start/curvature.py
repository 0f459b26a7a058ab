"""Second derivatives of a target, averaged over a few points, in double precision."""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._ingredients.target import Target, log_prob_of
from ..._words.double import doubled
from ..._words.tree import over_draws

POINTS = 8  # over which second derivatives are averaged
_COLUMNS = 64


class Curvature:
    """The mean Hessian of a target over `POINTS` points, times vectors.

    The derivative of each gradient in the direction of a vector is taken for all points at once. Whatever is
    linear in the gradient, such as the prior of a latent Gaussian, is then computed once for all of them.
    """

    def __init__(self, target: Target, shape: tuple[int, ...]) -> None:
        """Compile for points of one shape."""
        self.dim = int(np.prod(shape))
        self.columns = min(_COLUMNS, self.dim)
        began = time.perf_counter()
        arrays, static = eqx.partition(target, eqx.is_array)
        self._arrays = arrays

        def run(arrays, points, vectors):
            def gradient(target, x):
                return jax.grad(lambda x: log_prob_of(target, x.reshape(shape)))(x)

            def along(target, vector):
                def at(target, x):
                    return jax.jvp(lambda x: gradient(target, x), (x,), (vector,))[1]

                return jnp.mean(over_draws(at, target, points), axis=0)

            return over_draws(along, eqx.combine(arrays, static), vectors)

        with doubled():
            shapes = [(POINTS, self.dim), (self.columns, self.dim)]
            points, vectors = (jax.ShapeDtypeStruct(shape, np.float64) for shape in shapes)
            self._run = jax.jit(run).lower(arrays, points, vectors).compile()
        self.compile_seconds = time.perf_counter() - began

    def times(self, points: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Return the mean Hessian times each of some vectors, one row each."""
        parts = []
        for i in range(0, len(vectors), self.columns):
            part = vectors[i : i + self.columns]
            full = np.concatenate([part, np.zeros((self.columns - len(part), self.dim))])
            with jax.enable_x64(True):
                parts.append(np.asarray(self._run(self._arrays, points, full))[: len(part)])
        return np.concatenate(parts)

    def matrix(self, points: np.ndarray) -> np.ndarray:
        """Return the whole mean Hessian."""
        whole = np.empty((self.dim, self.dim))
        for i in range(0, self.dim, self.columns):
            rows = np.zeros((min(self.columns, self.dim - i), self.dim))
            rows[np.arange(len(rows)), i + np.arange(len(rows))] = 1
            whole[i : i + len(rows)] = self.times(points, rows)
        return 0.5 * (whole + whole.T)
