"""Densities with known answers, which this library and others are measured by.

`load(name)` returns one of `NAMES` with all that is known about it: the log normaliser, exact samples or
reference draws, and the best published numbers. It is a target like any other, as in
`pg.evaluate(flow, pg.targets.load("ring"), key=key)`. Some need data files: `pathgrad data list` shows which,
`pathgrad data download NAME` fetches them.
"""

import lazy_loader

# The names are in `__init__.pyi`. They need JAX, and `pathgrad data list` should answer at once.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
