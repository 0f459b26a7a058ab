"""Studies of the cost of gradients: configurations, FLOPs, other packages, growth, bars, tables, figures."""
