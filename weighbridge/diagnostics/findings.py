"""Reasons not to trust the draws of chains, in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from weighbridge.core.thresholds import (
    MAX_RHAT,
    MIN_CHAIN_ACCEPTANCE,
    MIN_ENERGY_FRACTION,
    MIN_ESS_PER_CHAIN,
)
from weighbridge.diagnostics.convergence import Kind, ess, rhat
from weighbridge.diagnostics.draws import scalar_chains
from weighbridge.diagnostics.energy import energy_fraction

# Largest number of entries or chains named in a text.
SHOWN = 5


def warnings_of(
    samples: Mapping[str, Any],
    stats: Mapping[str, Any] | None = None,
    max_tree_depth: int | None = None,
) -> tuple[str, ...]:
    """Reasons not to trust the draws, in plain words, each with its remedy.

    Args:
        samples: draws by parameter name, chains x draws x shape.
        stats: sample statistics, chains x draws; used are ``divergent``, ``energy``,
            ``step_energies``, ``tree_depth`` and ``acceptance``, if present.
        max_tree_depth: the largest number of doublings of a trajectory.

    Returns:
        One text for each finding; empty if there is none.

    >>> chains = np.random.default_rng(0).normal(size=(4, 1000))
    >>> warnings_of({"a": chains}, {"divergent": np.zeros((4, 1000), bool)})
    ()
    >>> print(warnings_of({"a": chains + np.arange(4)[:, None]})[0])
    Chains disagree: R-hat is above 1.01 for 1 of 1 entries, a (1.56). ...
    """
    entries = scalar_chains(samples)
    known = {name: np.asarray(value) for name, value in (stats or {}).items()}
    found = [*_of_draws(entries), *_of_convergence(entries), *_of_trajectories(known)]
    depth = known.get("tree_depth")
    if depth is not None and max_tree_depth is not None:
        share = float(np.mean(depth >= max_tree_depth))
        if share > 0:
            found.append(
                f"Trajectories were cut short: {_percent(share)} of them reached the maximum tree "
                f"depth of {max_tree_depth}. The draws are valid but expensive: raise "
                "max_tree_depth, or rescale the parameters so that the posterior has the same "
                "width in all directions (a dense metric does this for correlations)."
            )
    return tuple(found)


def _of_draws(entries: Mapping[str, np.ndarray]) -> list[str]:
    broken = [label for label, chains in entries.items() if not np.isfinite(chains).all()]
    found = []
    if broken:
        found.append(
            f"Draws are not finite for {_count(broken, entries)}, {_listed(broken)}: they have no "
            "mean. Check the model with wb.check_model, and tighten priors under which a parameter "
            "can diverge."
        )
    still = [label for label, chains in entries.items() if chains.size > 1 and np.ptp(chains) == 0]
    if still and len(still) == len(entries):
        found.append(
            "The chains never moved: all draws are the same. Use a smaller step size or other "
            "initial points, and check the model with wb.check_model."
        )
    return found


def _of_convergence(entries: Mapping[str, np.ndarray]) -> list[str]:
    found = []
    ratio = {label: float(rhat(chains)) for label, chains in entries.items()}
    apart = sorted((label for label in ratio if ratio[label] > MAX_RHAT), key=lambda n: -ratio[n])
    if apart:
        found.append(
            f"Chains disagree: R-hat is above {MAX_RHAT} for {_count(apart, entries)}, "
            f"{_listed(apart, ratio, 2)}. They have not reached the same distribution: run "
            "longer, with a longer warm-up. If this does not help, the posterior has several modes "
            "or directions that the data do not determine: reparametrise, or use tempering."
        )
    kinds: tuple[tuple[Kind, str], ...] = (("bulk", "means"), ("tail", "quantiles and intervals"))
    for kind, meaning in kinds:
        worth = {label: float(ess(chains, kind)) for label, chains in entries.items()}
        few = [n for n, chains in entries.items() if worth[n] < MIN_ESS_PER_CHAIN * len(chains)]
        few.sort(key=worth.__getitem__)
        if few:
            found.append(
                f"Few effective draws: the {kind} ESS is below {MIN_ESS_PER_CHAIN} per chain for "
                f"{_count(few, entries)}, {_listed(few, worth)}. Their {meaning} are inaccurate, "
                "and so are these diagnostics: take more draws, or reparametrise for faster mixing."
            )
    return found


def _of_trajectories(stats: Mapping[str, np.ndarray]) -> list[str]:
    found = []
    divergent = int(np.sum(stats["divergent"])) if "divergent" in stats else 0
    if divergent:
        share = divergent / stats["divergent"].size
        found.append(
            f"{divergent:,} divergent transitions ({_percent(share)}): the integrator could not "
            "follow the posterior where it is narrow, and the draws may miss that region. Raise "
            "the target acceptance (0.95, 0.99); if they remain, use a non-centred "
            "parametrisation or tighter priors. posterior.divergences shows where they are."
        )
    if "energy" in stats:
        fractions = energy_fraction(stats["energy"], stats.get("step_energies"))
        low = np.flatnonzero(fractions < MIN_ENERGY_FRACTION)
        if len(low):
            named = ", ".join(f"{k} ({fractions[k]:.2f})" for k in low[:SHOWN])
            found.append(
                f"Low E-BFMI (below {MIN_ENERGY_FRACTION}) in chain {named}: the momentum moves "
                "the energy too little to reach the tails. Reparametrise heavy tails (non-centred, "
                "or on a logarithmic scale), or run a longer warm-up."
            )
    if "acceptance" in stats:
        acceptance = float(np.mean(stats["acceptance"]))
        if not acceptance >= MIN_CHAIN_ACCEPTANCE:
            found.append(
                f"Moves were mostly rejected: the mean acceptance is {acceptance:.2g}. Use a "
                "smaller step size, a longer warm-up, or a kernel that fits the posterior better."
            )
    return found


def _count(labels: list[str], entries: Mapping[str, np.ndarray]) -> str:
    return f"{len(labels):,} of {len(entries):,} entries"


def _listed(
    labels: list[str], numbers: Mapping[str, float] | None = None, decimals: int = 0
) -> str:
    """The first labels, each with its number if there are numbers."""
    shown = labels[:SHOWN]
    if numbers is not None:
        shown = [f"{label} ({numbers[label]:.{decimals}f})" for label in shown]
    return ", ".join(shown) + (" and more" if len(labels) > SHOWN else "")


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
