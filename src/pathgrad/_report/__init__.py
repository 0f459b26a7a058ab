"""One self-contained HTML page of one or many runs. No JAX here: it is made of what runs have written."""

from .comparison import Comparison as Comparison
from .comparison import compare as compare
from .contents import Broken as Broken
from .contents import Run as Run
from .contents import read_run as read_run
from .page import make_page as make_page
