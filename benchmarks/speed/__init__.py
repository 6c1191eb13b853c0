"""What settings and habits cost in seconds: compilation, blocks of rows, moves, scales."""
