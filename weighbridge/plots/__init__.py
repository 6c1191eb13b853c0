"""Figures. Matplotlib is imported only when a figure is drawn."""
