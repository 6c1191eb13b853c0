"""A run that is watched: events, checkpoints, a display and a report."""
