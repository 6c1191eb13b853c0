"""One file per move; each is ``init`` and ``step`` behind the one Kernel protocol."""
