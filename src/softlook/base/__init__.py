"""Words everyone shares: errors and the legend of shape letters."""
