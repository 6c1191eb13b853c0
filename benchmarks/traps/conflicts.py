"""Priors that conflict with the likelihood, in one to three dimensions.

Prior and likelihood are products over the coordinates, so the evidence is a product of integrals
over one coordinate. Where both have heavy tails there are two modes in each coordinate, of which a
path from the prior to the posterior sees the second one only at its end.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import numpy as np
from scipy import special, stats

from benchmarks.traps import sites
from benchmarks.traps.quadrature import around, log_integral, panels
from benchmarks.traps.trap import LOG_TWO_PI, Modes, Trap


def student_rows(theta: Any, row: Any, xp: Any) -> Any:
    """Rows y with Student-t noise around theta; the noise is described in the row."""
    z = (row["y"] - theta) / row["scale"]
    degrees = row["degrees"]
    each = -0.5 * (degrees + 1) * xp.log1p(z**2 / degrees) - xp.log(row["scale"])
    return xp.sum(each + row["constant"], axis=-1)


def normal_rows(theta: Any, row: Any, xp: Any) -> Any:
    """Rows y with normal noise around theta."""
    z = (row["y"] - theta) / row["scale"]
    return xp.sum(-0.5 * z**2 - xp.log(row["scale"]) - 0.5 * LOG_TWO_PI, axis=-1)


def _log_prior(prior: str, degrees: float, scale: float, x: np.ndarray) -> np.ndarray:
    law = {"normal": stats.norm(0, scale), "laplace": stats.laplace(0, scale)}
    return np.asarray(law.get(prior, stats.t(degrees, 0, scale)).logpdf(x))


def coordinate(
    likelihood: Any, data: Any, j: int, prior: tuple[str, float, float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points, weights and log of prior times likelihood along coordinate j."""
    y, noise = data["y"][:, j], data["scale"][:, j]
    own = {name: column[:, j : j + 1] for name, column in data.items()}
    centres = np.append(y, 0.0)
    widths = np.append(noise, prior[2])
    far = 1e7 * (np.ptp(centres) + widths.max())
    x, weights = panels(around(centres, widths, far))
    values = likelihood(x[:, None, None], own, np).sum(axis=-1)
    return x, weights, values + _log_prior(*prior, x)


def peaks(x: np.ndarray, values: np.ndarray) -> list[slice]:
    """The intervals between the lowest points that separate the modes of a curve."""
    inner = np.flatnonzero((values[1:-1] < values[:-2]) & (values[1:-1] <= values[2:])) + 1
    edges = [0, *inner.tolist(), len(x)]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def modes(likelihood: Any, data: Any, prior: tuple[str, float, float]) -> Modes:
    """All combinations of the modes of the coordinates.

    Brute force draws every coordinate either from the prior or uniformly between the prior's
    middle and the observations: in three dimensions the prior alone has nothing near them.
    """
    share, reach = np.ones(1), np.ones(1)
    for j in range(data["y"].shape[1]):
        x, weights, values = coordinate(likelihood, data, j, prior)
        pieces = peaks(x, values)
        masses = [log_integral(values[p], weights[p]) for p in pieces]
        low, high = np.append(data["y"][:, j], 0.0).min(), np.append(data["y"][:, j], 0.0).max()
        points = []
        for p in pieces:
            of_prior = np.exp(log_integral(_log_prior(*prior, x[p]), weights[p]))
            overlap = min(x[p][-1], high) - max(x[p][0], low)
            points.append(0.5 * of_prior + 0.5 * max(overlap, 0.0) / (high - low))
        share = np.outer(share, special.softmax(masses)).reshape(-1)
        reach = np.outer(reach, points).reshape(-1)
    return Modes(share, reach)


def exact(likelihood: Any, data: Any, prior: tuple[str, float, float]) -> float:
    """The product over the coordinates."""
    return sum(
        log_integral(*coordinate(likelihood, data, j, prior)[:0:-1])
        for j in range(data["y"].shape[1])
    )


def build(generator: np.random.Generator) -> Trap:
    """A conflict: light or heavy tails on both sides; a third are ties like that of issue 25."""
    size, count = int(generator.integers(1, 4)), int(generator.choice([1, 1, 1, 2, 5]))
    tie = generator.random() < 1 / 3
    heavy = tie or generator.random() < 0.6
    law = "student" if tie else str(generator.choice(["normal", "laplace", "student"]))
    degrees = 3.0 if tie else float(np.round(generator.uniform(2, 6), 1))
    scale = 0.5 if tie else float(10 ** generator.uniform(-0.5, 0.5))
    distance = generator.uniform(8, 60, size) * scale
    noise = scale if tie else scale * 10 ** generator.uniform(-1, 0.5)
    count = 1 if tie else count
    own = degrees if tie else float(np.round(generator.uniform(2, 6), 1))
    y = distance + noise * generator.standard_normal((count, size)) * (not tie)
    full = np.ones((count, size))
    data = {"y": y, "scale": noise * full}
    if heavy:
        constant = special.gammaln((own + 1) / 2) - special.gammaln(own / 2)
        data |= {"degrees": own * full}
        data |= {"constant": (constant - 0.5 * math.log(own * math.pi)) * full}
    likelihood = student_rows if heavy else normal_rows
    prior = (law, degrees, scale)
    x = {
        "normal": sites.normal("x", 0.0, scale, size),
        "laplace": sites.laplace("x", scale, size),
        "student": sites.student("x", degrees, scale, size),
    }[law]
    return Trap(
        "conflict",
        f"{law} prior, {'Student-t' if heavy else 'normal'} noise, {size}-D, {count} rows"
        + (", a tie" if tie else ""),
        (x,),
        likelihood,
        data,
        partial(exact, likelihood, data, prior),
        partial(modes, likelihood, data, prior),
        rows=True,
    )
