"""Train flows with path gradients."""

import lazy_loader

# The names are listed in `__init__.pyi`, by layer. Each is imported on first use: most need JAX, which takes
# over a second to import, and `pathgrad --help` should answer at once.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
