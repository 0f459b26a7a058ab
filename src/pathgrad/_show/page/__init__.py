"""One self-contained HTML page about one or many runs, made from their files. No JAX here."""

from .page import make_page as make_page
