"""A second look at a finished path: modes that it missed."""
