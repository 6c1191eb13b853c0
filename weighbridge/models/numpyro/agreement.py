"""Check that a model made from a NumPyro function has NumPyro's prior and likelihood."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from weighbridge.core.errors import ModelError
from weighbridge.core.random import random_key
from weighbridge.models.model import Model, draw_positions, unravel_positions
from weighbridge.models.priors import Parameters

BySite = dict[str, Any]
NUM_CHECK_DRAWS = 3
CHECK_SEEDS = 8  # draws without a finite likelihood check nothing: try the next seed
TOLERANCE = 1e-6


def check_agreement(
    model: Model,
    both_sides: Callable[[Parameters, Mapping[str, Any]], tuple[BySite, ...]],
    rows: Mapping[str, Any],
    by_row: Sequence[str] = (),
) -> None:
    """Compare prior and likelihood with NumPyro's own values, at prior draws.

    Args:
        model: the model; its prior is drawn from.
        both_sides: returns priors and likelihoods by site at draws and rows, each as a pair: ours
            by row, and NumPyro's total.
        rows: the example rows.
        by_row: latent sites with as many values as the data have rows.
    """
    compare = jax.jit(both_sides)
    for seed in range(CHECK_SEEDS):
        positions = draw_positions(model, random_key(seed), NUM_CHECK_DRAWS)
        parameters = unravel_positions(model, positions)
        priors, likelihoods = jax.tree_util.tree_map(np.asarray, compare(parameters, rows))
        for name, (ours, theirs) in priors.items():
            gap, worst = _largest_gap(ours, theirs[:, None], np.abs(theirs)[:, None])
            if gap > TOLERANCE:
                raise ModelError(
                    f"The prior of {name!r} depends on the data: its log density at a prior draw "
                    f"is {theirs[worst[0]]:.6g} with all example rows and {ours[worst]:.6g} with "
                    "one of them. Compute what it needs beforehand and pass it with static={...}."
                )
        for name, (ours, theirs) in likelihoods.items():
            total = ours.sum(axis=1)
            gap, worst = _largest_gap(total, theirs, np.abs(ours).sum(axis=1))
            if gap > TOLERANCE and by_row:
                raise ModelError(
                    f"The latent site {by_row[0]!r} has one value for each row of the data, so "
                    f"that rows of {name!r} cannot be weighed one by one. Give from_numpyro(..., "
                    "total=True): then all the data are weighed at once, by wb.evidence(model, "
                    f'method="smc"). Or integrate {by_row[0]!r} out of the likelihood, if that '
                    "can be done by hand: the rows are then independent, and can stream."
                )
            if gap > TOLERANCE:
                raise ModelError(
                    f"The observed site {name!r} does not factorise over rows: at a prior draw "
                    f"its log-likelihood is {theirs[worst]:.8g} on {ours.shape[1]} rows together, "
                    f"and the rows one by one sum to {total[worst]:.8g} (difference "
                    f"{total[worst] - theirs[worst]:.3g}). Each row must enter alone, inside a "
                    "plate whose size comes from an argument's shape; pass statistics of the "
                    "whole data with static={...}. Rows that depend on each other, such as a "
                    "time series, need from_numpyro(..., total=True)."
                )
        if all(np.isfinite(theirs).any() for _, theirs in likelihoods.values()):
            return
    raise ModelError(
        f"The log-likelihood of {sorted(likelihoods)} is not finite at any of "
        f"{CHECK_SEEDS * NUM_CHECK_DRAWS} prior draws, so that it cannot be checked. Check the "
        "example rows, or use a prior that gives them a positive density."
    )


def check_total_agreement(model: Model, joint: Callable[[Parameters], tuple[Any, Any]]) -> None:
    """Compare the density of parameters and data with NumPyro's own, at prior draws.

    Args:
        model: the model; its prior is drawn from.
        joint: log densities at draws: ours, and NumPyro's.
    """
    compare = jax.jit(joint)
    for seed in range(CHECK_SEEDS):
        positions = draw_positions(model, random_key(seed), NUM_CHECK_DRAWS)
        ours, theirs = map(np.asarray, compare(unravel_positions(model, positions)))
        gap, worst = _largest_gap(ours, theirs, np.abs(theirs))
        if gap > TOLERANCE:
            raise ModelError(
                f"The log density of the NumPyro model at a prior draw is {theirs[worst]:.8g} by "
                f"NumPyro and {ours[worst]:.8g} as prior times likelihood. Write the model as "
                "wb.Model(prior, total_log_likelihood=...)."
            )
        if np.isfinite(theirs).any():
            return
    raise ModelError(
        f"The log density is not finite at any of {CHECK_SEEDS * NUM_CHECK_DRAWS} prior draws, so "
        "that it cannot be checked. Check the data, or use a prior that gives them a positive "
        "density."
    )


def _largest_gap(ours: np.ndarray, theirs: np.ndarray, size: np.ndarray) -> tuple[float, Any]:
    """The largest relative difference, and its place; equal infinities agree."""
    ours, theirs, size = np.broadcast_arrays(ours, theirs, size)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    finite = np.isfinite(ours) & np.isfinite(theirs)
    with np.errstate(invalid="ignore"):
        gaps = np.abs(ours - theirs) / np.maximum(size, 1.0)
    gaps = np.where(same, 0.0, np.where(finite, gaps, np.inf))
    worst = np.unravel_index(np.argmax(gaps), gaps.shape)
    return float(gaps[worst]), worst
