"""Time the layers of the image models, with both derivatives: XLA's convolutions against ours.

    GLIBC_TUNABLES=glibc.malloc.hugetlb=1 taskset -c 1 python -m benchmarks.convolutions

Batch 100, float32. Times are medians of processor time, because the machine may be shared; the two take
turns. A gated layer is listed as one convolution with twice the channels. The variable avoids the cost of
page faults.
"""

import statistics
import time
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from pathgrad.experiments.vae import convolution

BATCH = 100
REPETITIONS = 5


def layers(h: int, w: int) -> list[tuple[str, int, int, tuple[int, int], int, int, int, int, int]]:
    """Return kind, channels in and out, kernel, stride, padding, output padding and input size of each."""
    h2, w2, h4, w4 = h // 2, w // 2, h // 4, w // 4
    five, last = (5, 5), (h4, w4)
    return [
        ("plain", 1, 64, five, 1, 2, 0, h, w),
        ("plain", 32, 64, five, 2, 2, 0, h, w),
        ("plain", 32, 128, five, 1, 2, 0, h2, w2),
        ("plain", 64, 128, five, 2, 2, 0, h2, w2),
        ("plain", 64, 128, five, 1, 2, 0, h4, w4),
        ("plain", 64, 512, last, 1, 0, 0, h4, w4),
        ("transposed", 64, 128, last, 1, 0, 0, 1, 1),
        ("transposed", 64, 128, five, 1, 2, 0, h4, w4),
        ("transposed", 64, 64, five, 2, 2, 1, h4, w4),
        ("transposed", 32, 64, five, 1, 2, 0, h2, w2),
        ("transposed", 32, 64, five, 2, 2, 1, h2, w2),
        ("transposed", 32, 64, five, 1, 2, 0, h, w),
        ("plain", 32, 256, five, 1, 2, 0, h, w),
    ]


def program(kind: str, options: dict[str, int], *, ours: bool, like: tuple[Any, Any]) -> Any:
    """Compile the value and both derivatives."""
    f = convolution.convolve if kind == "plain" else convolution.convolve_transposed

    def everything(x, weight):
        y, back = jax.vjp(lambda x, weight: f(x, weight, **options), x, weight)
        return y, back(y)

    with mock.patch.object(convolution, "_rewrites", return_value=ours):
        return jax.jit(everything).lower(*like).compile()


def times(programs: list[Any], arguments: tuple[Any, Any]) -> list[float]:
    """Return the median time of each program in seconds, without its first run."""
    taken: list[list[float]] = [[] for _ in programs]
    for _ in range(1 + REPETITIONS):
        for run, record in zip(programs, taken, strict=True):
            start = time.process_time()
            jax.block_until_ready(run(*arguments))
            record.append(time.process_time() - start)
    return [statistics.median(record[1:]) for record in taken]


def main() -> None:
    """Print a table for each image size."""
    draw = np.random.default_rng(0).normal
    for h, w in ((28, 20), (28, 28)):
        print(f"{h}x{w} images{'':31}  stock    ours  factor")
        total = np.zeros(2)
        for kind, c, out, kernel, stride, padding, extra, high, wide in layers(h, w):
            options = {"stride": stride, "padding": padding}
            if kind == "transposed":
                options["output_padding"] = extra
            x = jnp.asarray(draw(size=(BATCH, high, wide, c)), jnp.float32)
            weight = jnp.asarray(draw(size=(*kernel, c, out)), jnp.float32)
            pair = [program(kind, options, ours=o, like=(x, weight)) for o in (False, True)]
            stock, ours = times(pair, (x, weight))
            total += stock, ours
            name = f"{kind} {c}->{out} {kernel[0]}x{kernel[1]} stride {stride} on {high}x{wide}"
            print(f"{name:42} {stock:7.4f} {ours:7.4f} {stock / ours:7.1f}", flush=True)
        print(f"{'sum':42} {total[0]:7.4f} {total[1]:7.4f} {total[0] / total[1]:7.1f}\n")


if __name__ == "__main__":
    main()
