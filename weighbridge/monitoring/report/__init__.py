"""The report of a watch: one self-contained page of what its events tell."""
