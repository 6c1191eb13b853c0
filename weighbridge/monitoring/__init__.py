"""Long unattended runs: the watch, its events, checkpoints, display and report."""
