"""Pictures, from rows of metrics and arrays alone. Matplotlib is imported when one is drawn.

Every `plot_x` writes a file; the `x_figure` beside it returns the Matplotlib figure instead.
"""

from .bench import costs_figure as costs_figure
from .bench import plot_costs as plot_costs
from .elbo import elbo_figure as elbo_figure
from .elbo import evaluations_figure as evaluations_figure
from .elbo import plot_elbo as plot_elbo
from .elbo import unit_of as unit_of
from .evaluation import plot_evaluation as plot_evaluation
from .images import images_figure as images_figure
from .images import pictures_figure as pictures_figure
from .images import plot_images as plot_images
from .images import samples_figure as samples_figure
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
