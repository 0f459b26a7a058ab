"""One self-contained HTML page of one or many runs. No JAX here: it is made of what runs have written."""

from .page import make_page as make_page
