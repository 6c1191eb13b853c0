"""Progress of a run: bars, or a few lines in a log."""
