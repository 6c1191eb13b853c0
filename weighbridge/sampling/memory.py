"""The memory that chains and their draws will need, checked before they start."""

from __future__ import annotations

from weighbridge.core.memory import check_memory_needed

# Arrays of the size of all draws at the end of a run: blocks of positions, the joined blocks, the
# named parameters, and a temporary copy of one of them.
DRAW_COPIES = 4
# Matrices of parameters x parameters of a chain with a dense metric: sums, covariance, root, and a
# temporary one.
MATRICES = 4


def bytes_needed(dimension: int, num_chains: int, num_draws: int, *, dense: bool) -> int:
    """The approximate memory for the draws of all chains and their metrics, without the data.

    Args:
        dimension: number of parameters.
        num_chains: number of chains.
        num_draws: number of draws of each chain, over all its walkers.
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
    """Refuse chains that need more than the free memory; warn if they need much memory."""
    what = f"A model of {dimension:,} parameters with {num_chains} chains of {num_draws:,} draws"
    fewer = "Keep fewer draws (num_samples, thin)"
    if dense:
        fewer += ', or use a diagonal metric (warmup=wb.Warmup(metric="diagonal"))'
    check_memory_needed(bytes_needed(dimension, num_chains, num_draws, dense=dense), what, fewer)
