"""No bias: log Z over many runs, with exact draws in place of walkers and with walkers."""

import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special, stats

import weighbridge as wb
from weighbridge.estimators.nested.points import Points
from weighbridge.estimators.nested.replacement import Replacement

pytestmark = pytest.mark.long

# A prior N(0, 1)^10 and two normal likelihoods at its centre: the narrow one has 100 times the
# evidence of the wide one, and is found by the few points that go on past the stop.
DIMENSION, WIDE, NARROW = 10, 0.5, 0.05
SEEDS = range(1, 25)


def squares(scale):
    """Log-likelihood as a function of the squared radius: a normal density."""
    constant = DIMENSION * math.log(scale) + 0.5 * DIMENSION * math.log(2 * math.pi)
    return lambda square: -0.5 * square / scale**2 - constant


def level_at(square):
    return jnp.logaddexp(squares(WIDE)(square), math.log(100) + squares(NARROW)(square))


def log_evidence():
    wide, narrow = (
        float(stats.norm(0, math.hypot(1, scale)).logpdf(0)) * DIMENSION for scale in (WIDE, NARROW)
    )
    return float(np.logaddexp(wide, math.log(100) + narrow))


def exact(self, alive, contour, num_new, generator, at_once, num_walks):
    """Draws of the prior above the contour, by the distribution of the squared radius."""
    shape = (len(self.islands), num_new)
    low, high = np.full(shape[0], -80.0), np.full(shape[0], 5.0)
    for _ in range(100):
        middle = (low + high) / 2
        above = np.asarray(level_at(np.exp(middle))) > contour[:, 0]
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    share = special.gammainc(DIMENSION / 2, np.exp(low) / 2)[:, None] * generator.random(shape)
    square = 2 * special.gammaincinv(DIMENSION / 2, share)
    away = generator.standard_normal((*shape, DIMENSION))
    position = away * np.sqrt(square / np.sum(away**2, axis=2))[:, :, None]
    told = self.density.at(position.reshape(-1, DIMENSION))
    birth, birth_tie = (np.repeat(leaf[:, None], num_new, axis=1) for leaf in contour.T)
    return Points(
        position,
        *(leaf.reshape(shape) for leaf in told[:2]),
        generator.random(shape),
        birth,
        birth_tie,
        *np.zeros((2, *shape), int),
        np.repeat(self.islands[:, None], num_new, axis=1),
    )


@pytest.mark.parametrize("exactly", [True, False])
def test_the_mean_over_many_runs_is_right(exactly, monkeypatch):
    """The mean of 24 z has the standard error 0.2; the bound is 3.5 of these."""
    if exactly:
        monkeypatch.setattr(Replacement, "_walks", exact)
    prior = {"x": dist.Normal(0.0, 1.0).expand([DIMENSION]).to_event(1)}
    model = wb.Model(prior, total_log_likelihood=lambda p: level_at(jnp.sum(p["x"] ** 2)))
    method = wb.NestedSampling(num_live=200)
    results = [wb.evidence(model, None, method, seed=seed, progress=False) for seed in SEEDS]
    z = np.array([(r.log_evidence - log_evidence()) / r.std_error for r in results])
    assert abs(z.mean()) < 3.5 / math.sqrt(len(z))
    # The standard deviation of 24 z has a relative error of 0.15.
    assert 0.5 < z.std(ddof=1) < 1.5
