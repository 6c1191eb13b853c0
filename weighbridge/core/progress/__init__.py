"""How far a run has come, as bars or as sparse lines."""
