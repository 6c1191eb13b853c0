"""Evidences of models that are linear and Gaussian in all but a few parameters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from scipy.special import logsumexp

from benchmarks.traps.trap import LOG_TWO_PI

# Points of a grid that are computed together, and the most points of a grid.
TOGETHER = 20_000
LARGEST = 10**8


def log_marginals(
    columns: Sequence[np.ndarray], which: Sequence[np.ndarray], y: np.ndarray, noise: np.ndarray
) -> np.ndarray:
    """Log evidences of y = sum of some columns + noise, with unit normal coefficients.

    Args:
        columns: tables [m, n, c]: for each of m values of a nonlinear parameter, c columns that are
            scaled by the prior's and the noise's standard deviations.
        which: for each table the chosen value, of many combinations.
        y: the observations [n] in units of the noise.
        noise: the standard deviations of the noise.
    """
    flat = [table.reshape(len(table), len(y), -1) for table in columns]
    own = [np.einsum("anc,and->acd", table, table) for table in flat]
    cross = {
        (i, j): np.einsum("anc,bnd->abcd", flat[i], flat[j], optimize=True)
        for i, j in itertools.combinations(range(len(flat)), 2)
    }
    projections = [np.einsum("anc,n->ac", table, y) for table in flat]
    constant = -0.5 * y @ y - 0.5 * len(y) * LOG_TWO_PI - np.log(noise).sum()
    found = []
    for start in range(0, len(which[0]), TOGETHER):
        chosen = [index[start : start + TOGETHER] for index in which]
        gram = np.block(
            [
                [
                    own[i][chosen[i]]
                    if i == j
                    else cross[i, j][chosen[i], chosen[j]]
                    if i < j
                    else np.swapaxes(cross[j, i][chosen[j], chosen[i]], 1, 2)
                    for j in range(len(flat))
                ]
                for i in range(len(flat))
            ]
        )
        precision = gram + np.eye(gram.shape[-1])
        projected = np.concatenate([p[c] for p, c in zip(projections, chosen)], axis=1)
        root = np.linalg.cholesky(precision)
        solved = np.linalg.solve(root, projected[..., None])[..., 0]
        log_det = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
        found.append(constant + 0.5 * np.sum(solved**2, axis=1) - log_det)
    return np.concatenate(found)


def over_grid(
    table: np.ndarray,
    fixed: np.ndarray,
    log_weights: np.ndarray,
    count: int,
    y: np.ndarray,
    noise: np.ndarray,
) -> tuple[float, np.ndarray, np.ndarray]:
    """Evidence of ``count`` exchangeable terms, each with a nonlinear parameter on one grid.

    Args:
        table: columns [m, n, c] of a term at every point of the grid.
        fixed: columns [n, c] that are always there.
        log_weights: prior mass of the grid's points.
        count: number of terms.
        y, noise: as of ``log_marginals``.

    Returns:
        The log evidence, the combinations of grid points with i <= j <= ..., and the log posterior
        mass of each, of all its permutations together.
    """
    size = len(table)
    if size**count > LARGEST:
        raise ValueError(f"The grid has {size}^{count} points.")
    which = np.array(list(itertools.combinations_with_replacement(range(size), count))).T
    values = log_marginals([table] * count + [fixed[None]], [*which, 0 * which[0]], y, noise)
    values = values + log_weights[which].sum(axis=0) + np.log(_permutations(which))
    return float(logsumexp(values)), which, values


def _permutations(which: np.ndarray) -> np.ndarray:
    """In how many orders a sorted combination of one to three numbers exists."""
    count = len(which)
    same = (which[1:] == which[:-1]).sum(axis=0) if count > 1 else np.zeros(which.shape[1])
    by_ties = {1: [1, 1, 1], 2: [2, 1, 1], 3: [6, 3, 1]}[count]
    return np.array(by_ties)[same.astype(int)]
