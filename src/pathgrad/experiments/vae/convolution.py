"""Convolutions of images, plain and transposed, whose derivatives are fast on a CPU.

XLA's own convolutions are slow on a CPU when transposed or differentiated. Here strides are removed first:
the phases of an image become channels, so that every layer is a convolution of stride one. The kernel then
decides (`_correlate`): one as large as the image is a matrix product; sides of 3 and 5 use `_winograd`; the
rest is left to XLA. Other devices use XLA throughout.

Winograd's method treats tiles of the image and the kernel as polynomials and evaluates them at a few points,
where the convolution is a product; interpolation gives 4x4 of its values. A 5x5 kernel needs 64 products
instead of 400, and all of them, derivatives included, are matrix products over the channels. In float32 the
error is about 5e-6 of the root mean square.

Value and both derivatives of all layers, batch 100, on one core: 5.6 s by XLA and 0.9 s here for 28x20
images, 10.8 s and 1.1 s for 28x28. This is with large pages, which save a tenth of our time in page faults:
with glibc, start Python with `GLIBC_TUNABLES=glibc.malloc.hugetlb=1`. `benchmarks/convolutions.py` times the
layers one by one; with stride 2 on 14x10 there is no gain.
"""

import contextlib
import contextvars
import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

LAYOUT = ("NHWC", "HWIO", "NHWC")
_FORWARD_ONLY = contextvars.ContextVar("forward_only", default=False)
SIDE = 4  # values along a side of a tile
# Points where the polynomials are evaluated, by the side of the kernel; a last point, infinity, is implied.
POINTS = {3: (0.0, 1.0, -1.0, 2.0, -2.0), 5: (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5)}


def convolve(
    x: Float[Array, "batch height width channels"],
    weight: Float[Array, "kh kw channels out"],
    *,
    stride: int = 1,
    padding: int = 0,
) -> Float[Array, "batch h w out"]:
    """Correlate zero-padded images with a kernel, like PyTorch's `conv2d`."""
    if not _rewrites():
        pads = ((padding, padding),) * 2
        return lax.conv_general_dilated(x, weight, (stride, stride), pads, dimension_numbers=LAYOUT)
    pads = []
    for n, k in zip(x.shape[1:3], weight.shape[:2], strict=True):
        size = (n + 2 * padding - k) // stride + 1
        pads.append((padding, stride * (size + -(-k // stride) - 1) - n - padding))
    x = _pad(x, pads)
    b, h, w, c = x.shape
    phases = x.reshape(b, h // stride, stride, w // stride, stride, c).transpose(0, 1, 3, 2, 4, 5)
    kernel = _split(weight, stride).transpose(0, 2, 1, 3, 4, 5)
    return _correlate(_merge(phases, 3, 6), _merge(kernel, 2, 5))


def convolve_transposed(
    x: Float[Array, "batch height width channels"],
    weight: Float[Array, "kh kw channels out"],
    *,
    stride: int = 1,
    padding: int = 0,
    output_padding: int = 0,
) -> Float[Array, "batch h w out"]:
    """Spread images by a kernel, as PyTorch's `ConvTranspose2d` with `W[in, out] = weight[:, :, in, out]`."""
    if not _rewrites():
        pads = [(k - 1 - padding, k - 1 - padding + output_padding) for k in weight.shape[:2]]
        return lax.conv_general_dilated(
            x, weight[::-1, ::-1], (1, 1), pads, lhs_dilation=(stride, stride), dimension_numbers=LAYOUT
        )
    if x.shape[1:3] == (1, 1) and padding == output_padding == 0:  # a matrix product
        return jnp.einsum("bc,hwco->bhwo", x[:, 0, 0], weight)
    first = padding // stride
    pads, crops = [], []
    for n, k in zip(x.shape[1:3], weight.shape[:2], strict=True):
        size = (n - 1) * stride - 2 * padding + k + output_padding
        end = (padding + size - 1) // stride + 1
        pads.append((-(-k // stride) - 1 - first, end - n))
        crops.append((first * stride - padding, padding + size - end * stride))
    kernel = _split(weight, stride)[::-1, :, ::-1].transpose(0, 2, 4, 1, 3, 5)
    phases = _correlate(_pad(x, pads), _merge(kernel, 3, 6))
    b, h, w, _ = phases.shape
    y = phases.reshape(b, h, w, stride, stride, -1).transpose(0, 1, 3, 2, 4, 5)
    return _pad(y.reshape(b, h * stride, w * stride, -1), crops)


@contextlib.contextmanager
def forward_only() -> Iterator[None]:
    """Trace convolutions whose derivatives are not needed: small kernels are then left to XLA, too."""
    token = _FORWARD_ONLY.set(True)
    try:
        yield
    finally:
        _FORWARD_ONLY.reset(token)


def _rewrites() -> bool:
    """Return whether to bypass XLA's convolutions: only on a CPU."""
    return jax.default_backend() == "cpu"


def _pad(x: Array, pads: list[tuple[int, int]]) -> Array:
    """Pad images with zeros, or crop them where the padding is negative."""
    return lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *((*p, 0) for p in pads), (0, 0, 0)])


def _merge(x: Array, start: int, stop: int) -> Array:
    """Flatten axes into one."""
    return x.reshape(*x.shape[:start], -1, *x.shape[stop:])


def _split(weight: Array, stride: int) -> Array:
    """Split the two axes of a kernel into (tap, phase), with zeros where a phase has fewer taps."""
    kh, kw, c, out = weight.shape
    h, w = -(-kh // stride), -(-kw // stride)
    weight = jnp.pad(weight, ((0, h * stride - kh), (0, w * stride - kw), (0, 0), (0, 0)))
    return weight.reshape(h, stride, w, stride, c, out)


def _correlate(x: Array, weight: Array) -> Array:
    """Correlate with stride one and no padding."""
    kh, kw, _, out = weight.shape
    if x.shape[1:3] == (kh, kw):  # one value: a matrix product
        return (x.reshape(x.shape[0], -1) @ weight.reshape(-1, out))[:, None, None]
    is_small = kh <= 3 and kw <= 3
    if kh not in POINTS or kw not in POINTS or (is_small and _FORWARD_ONLY.get()):
        return lax.conv_general_dilated(x, weight, (1, 1), "VALID", dimension_numbers=LAYOUT)
    h, w = x.shape[1] - kh + 1, x.shape[2] - kw + 1
    th, tw = -(-h // SIDE), -(-w // SIDE)
    size = _chunk(x.shape[0], th * tw, weight.shape[2:])
    chunks = -(-x.shape[0] // size)
    extra = ((0, chunks * size - x.shape[0]), (0, th * SIDE - h), (0, tw * SIDE - w), (0, 0))
    padded = jnp.pad(x, extra)
    y = _winograd(padded.reshape(chunks, size, *padded.shape[1:]), _transform_kernel(weight))
    return y.reshape(chunks * size, *y.shape[2:])[: x.shape[0], :h, :w]


def _chunk(batch: int, tiles: int, channels: tuple[int, ...]) -> int:
    """Return how many images to handle at a time.

    Few, so that the transforms stay in the cache: 32 to 256 channels on 28x20 images take 0.31 s with 175
    tiles and 0.40 s with 350 to 700. But each chunk reads and writes the entire kernel, so more if the kernel
    is large compared with a tile: 256 to 128 channels on 7x5 images take 0.16, 0.09, 0.07 s with 50, 175, 400
    tiles.
    """
    c, out = channels
    wanted = max(1, max(175, 8 * c * out // (c + out)) / tiles)
    # Without a divisor nearby, zero images pad the last chunk, which costs a copy of everything.
    divisors = [n for n in range(1, batch + 1) if batch % n == 0 and n <= 1.25 * wanted]
    return divisors[-1] if 2 * divisors[-1] >= wanted else min(batch, round(wanted))


@functools.cache
def _matrices(taps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the matrices for values (points, side), kernels (points, taps) and tiles (points, points).

    Rows are powers of a point. The last point is infinity, where only the leading coefficient counts.
    """
    p = np.array(POINTS[taps])
    scale = np.array([np.prod([a - b for b in p if b != a]) for a in p] + [1.0])[:, None]

    def powers(k: int) -> np.ndarray:
        return np.concatenate([p[:, None] ** np.arange(k), np.eye(k)[-1:]])

    tile = np.linalg.inv(powers(len(p) + 1)).T * scale
    return powers(SIDE), powers(taps) / scale, tile


def _first(matrix: np.ndarray, x: Array) -> Array:
    """Apply a matrix along the first axis."""
    y = jnp.asarray(matrix, x.dtype) @ x.reshape(x.shape[0], -1)
    return y.reshape(-1, *x.shape[1:])


def _second(matrix: np.ndarray, x: Array) -> Array:
    """Apply a matrix along the second axis, as one product for each index of the first: no transposes."""
    m = jnp.broadcast_to(jnp.asarray(matrix, x.dtype), (x.shape[0], *matrix.shape))
    y = m @ x.reshape(*x.shape[:2], -1)
    return y.reshape(*y.shape[:2], *x.shape[2:])


def _transform_kernel(weight: Array) -> Array:
    """Evaluate kernels at the pairs of points: (points, points, channels, out)."""
    return _second(_matrices(weight.shape[1])[1], _first(_matrices(weight.shape[0])[1], weight))


def _transform_tiles(x: Array, points: tuple[int, int]) -> Array:
    """Evaluate overlapping tiles of images at the pairs of points: (points, points, tiles, channels)."""
    (nh, nw), s = points, SIDE
    th, tw = (x.shape[1] - nh) // s + 1, (x.shape[2] - nw) // s + 1
    x = x.transpose(1, 2, 0, 3)
    x = jnp.stack([x[k : k + s * (th - 1) + 1 : s] for k in range(nh)])
    x = _first(_matrices(nh - s + 1)[2], x)
    x = jnp.stack([x[:, :, k : k + s * (tw - 1) + 1 : s] for k in range(nw)], 1)
    return _merge(_second(_matrices(nw - s + 1)[2], x), 2, 5)


def _overlap(x: Array, axis: int) -> Array:
    """Add tiles where they overlap: pixels from the points on the first axis, one tile more on `axis`.

    Two terms, each shifted by full tiles, take a fifth of the time of JAX's own transpose of the slices.
    """
    low, high = [(0, 0, 0)] * x.ndim, [(0, 0, 0)] * x.ndim
    low[axis], high[axis] = (0, 1, 0), (1, 0, 0)
    high[0] = (0, 2 * SIDE - x.shape[0], 0)
    zero = jnp.zeros((), x.dtype)
    return lax.pad(x[:SIDE], zero, low) + lax.pad(x[SIDE:], zero, high)


def _merge_tiles(m: Array, tiles: tuple[int, int]) -> Array:
    """Apply the adjoint of `_transform_tiles`."""
    nh, nw, _, c = m.shape
    m = m.reshape(nh, nw, *tiles, -1, c)
    m = _overlap(_first(_matrices(nh - SIDE + 1)[2].T, m), 2)
    m = _second(_matrices(nw - SIDE + 1)[2].T, m)
    m = _overlap(jnp.swapaxes(m, 0, 1), 3).transpose(4, 2, 1, 3, 0, 5)
    h, w = SIDE * tiles[0] + nh - SIDE, SIDE * tiles[1] + nw - SIDE
    return _merge(_merge(m, 3, 5), 1, 3)[:, :h, :w]


def _spread_values(y: Array, points: tuple[int, int]) -> Array:
    """Apply the adjoint of `_gather_values`."""
    nh, nw = points
    b, h, w, c = y.shape
    y = y.reshape(b, h // SIDE, SIDE, w // SIDE, SIDE, c).transpose(2, 4, 1, 3, 0, 5)
    y = _second(_matrices(nw - SIDE + 1)[0], y)
    return _merge(_first(_matrices(nh - SIDE + 1)[0], y), 2, 5)


def _gather_values(m: Array, tiles: tuple[int, int]) -> Array:
    """Turn products at the pairs of points, (points, points, tiles, out), into images."""
    nh, nw, _, out = m.shape
    m = m.reshape(nh, nw, *tiles, -1, out)
    m = _second(_matrices(nw - SIDE + 1)[0].T, _first(_matrices(nh - SIDE + 1)[0].T, m))
    m = m.transpose(4, 2, 0, 3, 1, 5)
    return m.reshape(m.shape[0], tiles[0] * SIDE, tiles[1] * SIDE, out)


def _products(a: Array, b: Array, contract: tuple[int, int]) -> Array:
    """Multiply matrices for each pair of points."""
    dims = (((contract[0] - 1,), (contract[1] - 1,)), ((0,), (0,)))
    y = lax.dot_general(_merge(a, 0, 2), _merge(b, 0, 2), dims)
    return y.reshape(*a.shape[:2], *y.shape[1:])


@jax.custom_vjp
def _winograd(
    x: Float[Array, "chunks batch height width channels"], kernel: Float[Array, "nh nw channels out"]
) -> Float[Array, "chunks batch h w out"]:
    """Correlate images, whose sizes are multiples of a tile, with a transformed kernel, chunk by chunk.

    The derivative rule transforms the tiles again: storing them would take several times the memory of the
    images, and as much time.
    """
    points = (kernel.shape[0], kernel.shape[1])
    tiles = ((x.shape[2] - points[0]) // SIDE + 1, (x.shape[3] - points[1]) // SIDE + 1)

    def one(chunk: Array) -> Array:
        return _gather_values(_products(_transform_tiles(chunk, points), kernel, (3, 2)), tiles)

    return lax.map(one, x)


def _winograd_backward(residuals: tuple[Array, Array], dy: Array) -> tuple[Array, Array]:
    x, kernel = residuals
    points = (kernel.shape[0], kernel.shape[1])
    counts = (dy.shape[2] // SIDE, dy.shape[3] // SIDE)

    def one(dkernel: Array, chunk: tuple[Array, Array]) -> tuple[Array, Array]:
        tiles = _transform_tiles(chunk[0], points)
        values = _spread_values(chunk[1], points)
        dkernel = dkernel + _products(tiles, values, (2, 2))
        return dkernel, _merge_tiles(_products(values, kernel, (3, 3)), counts)

    dkernel, dx = lax.scan(one, jnp.zeros_like(kernel), (x, dy))
    return dx, dkernel


_winograd.defvjp(lambda x, kernel: (_winograd(x, kernel), (x, kernel)), _winograd_backward)
