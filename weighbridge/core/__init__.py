"""Foundations of all other rooms: errors, status, types, compilation, files, progress."""
