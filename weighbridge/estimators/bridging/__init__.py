"""Bridge sampling between particles and Gaussians."""
