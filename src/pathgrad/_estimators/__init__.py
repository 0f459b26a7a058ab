"""Gradients of `log q` at the flow's own draws."""

from .abstract import AbstractEstimator as AbstractEstimator
from .path import PathGradient as PathGradient
from .score_term import ScoreTerm as ScoreTerm
from .score_term import score_term as score_term
from .total import TotalGradient as TotalGradient
from .two_copy import TwoCopyGradient as TwoCopyGradient
