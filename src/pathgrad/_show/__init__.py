"""Drawing what it is handed: figures, and the page of a report. It never asks which experiment that is."""
