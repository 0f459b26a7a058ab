"""Pictures, from rows of metrics and arrays alone. Matplotlib is imported when one is drawn.

Every `plot_x` writes a file; the `x_figure` beside it returns the Matplotlib figure instead.
"""

from .evaluation import plot_evaluation as plot_evaluation
from .lattice import KINDS as KINDS
from .lattice import lattice_figure as lattice_figure
from .lattice import plot_lattice as plot_lattice
from .lattice import single_figure as single_figure
from .run import Evaluated as Evaluated
from .run import MissingData as MissingData
from .style import save as save
from .training import Training as Training
from .training import comparison_figure as comparison_figure
from .training import plot_comparison as plot_comparison
from .training import plot_time as plot_time
from .training import time_figure as time_figure
