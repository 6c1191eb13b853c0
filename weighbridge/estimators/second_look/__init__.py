"""A second look at a finished path: drifting particles, and modes that it missed."""
