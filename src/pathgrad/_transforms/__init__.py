"""Invertible maps that carry a `Draw`."""

from .abstract import AbstractTransform as AbstractTransform
from .cnf import CNF as CNF
