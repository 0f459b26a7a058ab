"""Second-order training by least squares on the log-weights."""

from .method import GaussNewton as GaussNewton
