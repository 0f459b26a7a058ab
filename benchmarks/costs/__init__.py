"""The study of what gradients cost: configurations, FLOPs, other packages, growth, bars, tables, figures."""
