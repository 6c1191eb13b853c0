"""One file per kernel; each has ``init`` and ``step`` of the Kernel protocol."""
