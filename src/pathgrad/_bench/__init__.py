"""What a training gradient costs: time, memory, evaluations. Behind `pathgrad bench`."""

import lazy_loader

# The names are in `__init__.pyi`. They need JAX, and `pathgrad bench cnf --help` should answer at once.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
