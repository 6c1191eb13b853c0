"""How much memory chains and their draws will take, told before they take it."""

from __future__ import annotations

from weighbridge.core.memory import check_memory_needed

# Arrays as large as all draws at the end of a run: blocks of positions, these joined, the named
# parameters, and one of them while they are made.
DRAW_COPIES = 4
# Matrices of all parameters by all that a chain with a dense metric holds: sums, covariance, root,
# and one on the way.
MATRICES = 4


def bytes_needed(dimension: int, num_chains: int, num_draws: int, *, dense: bool) -> int:
    """About what the draws of all chains and their metrics take, whatever the data do.

    Args:
        dimension: parameters.
        num_chains: of them.
        num_draws: of each chain, those of all its walkers together.
        dense: whether the metric is a matrix.

    >>> bytes_needed(5000, 4, 20_000, dense=False) > 1e10
    True
    >>> bytes_needed(50, 4, 1000, dense=True) < 1e8
    True
    """
    numbers = DRAW_COPIES * num_chains * num_draws * dimension
    if dense:
        numbers += MATRICES * num_chains * dimension**2
    return 8 * numbers


def check_memory(dimension: int, num_chains: int, num_draws: int, *, dense: bool) -> None:
    """Refuse chains that are larger than the memory there is; tell of ones that take much."""
    what = f"A model of {dimension:,} parameters with {num_chains} chains of {num_draws:,} draws"
    fewer = "Keep fewer draws (num_samples, thin)"
    if dense:
        fewer += ', or use a metric that is no matrix (warmup=wb.Warmup(metric="diagonal"))'
    check_memory_needed(bytes_needed(dimension, num_chains, num_draws, dense=dense), what, fewer)
