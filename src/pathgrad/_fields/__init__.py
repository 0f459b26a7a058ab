"""Velocity fields: any Equinox module called as `field(t, x)` for one point."""

from .abstract import AbstractTractableField as AbstractTractableField
from .mlp import MLPField as MLPField
