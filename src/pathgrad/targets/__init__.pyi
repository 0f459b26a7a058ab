from .catalogue import load as load
from .density import AbstractDensity as AbstractDensity
from .density import AbstractPosterior as AbstractPosterior
from .known import BenchmarkTarget as BenchmarkTarget
from .known import Published as Published
from .known import Reference as Reference
from .names import NAMES as NAMES
