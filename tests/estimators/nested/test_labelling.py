"""Exchangeable components: one labelling for moves, and exact evidences with K! modes."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp
from scipy.special import gammaln

import weighbridge as wb
from weighbridge.core.compilation import double_precision
from weighbridge.estimators.nested.labelling import MoveLabelling
from weighbridge.models.exchangeable import in_cell, shuffled

SITES = np.array([-4.0, 0.0, 5.0])
ORDERS = np.array(list(itertools.permutations(range(3))))


def three_sites(p):
    """Each of three components is at a site of its own: 3! separate modes of the same mass."""
    each = dist.Normal(SITES, 0.2).log_prob(p["x"][:, None])
    return logsumexp(jnp.sum(each[jnp.arange(3), ORDERS], axis=1))


def sites_model(total_log_likelihood=three_sites, **options):
    prior = {"x": dist.Uniform(-10, 10).expand([3]).to_event(1)}
    return wb.Model(
        prior, total_log_likelihood=total_log_likelihood, exchangeable={"x": 0}, **options
    )


SITES_EXACT = math.log(6.0) - 3 * math.log(20.0)


def shares(result):
    """Posterior mass of each order of the components."""
    order = np.argsort(np.argsort(result.samples["x"], axis=1), axis=1)
    weight = np.exp(result.log_weights)
    return np.array([weight[(order == one).all(axis=1)].sum() for one in ORDERS])


def sites_on_host(p):
    each = -0.5 * ((p["x"][..., None] - SITES) / 0.2) ** 2 - np.log(0.2 * np.sqrt(2 * np.pi))
    return np.logaddexp.reduce(each[:, np.arange(3), ORDERS].sum(axis=2), axis=1)


def test_walkers_on_the_host_stay_in_the_cell_too():
    model = sites_model(total_log_likelihood=sites_on_host, on_host=True)
    result = wb.evidence(model, None, wb.NestedSampling(num_live=80), seed=0)
    assert abs(result.log_evidence - SITES_EXACT) < 4 * result.std_error
    assert np.all(shares(result) > 0)


@pytest.mark.parametrize("moves", ["slice", pytest.param("galilean", marks=pytest.mark.long)])
def test_six_modes_have_their_evidence_and_equal_shares(moves):
    """Four comparisons of log Z: 4 errors are a false-alarm rate of 1 in 4,000.

    The orders are drawn at random, so a share has at most the error of so many posterior draws.
    """
    for seed in (0, 1):
        result = wb.evidence(
            sites_model(), None, wb.NestedSampling(num_live=200, moves=moves), seed=seed
        )
        assert abs(result.log_evidence - SITES_EXACT) < 4 * result.std_error
        size = 1 / np.sum(np.exp(2 * result.log_weights))
        assert np.all(np.abs(shares(result) - 1 / 6) < 4.5 * math.sqrt(5 / 36 / size))


def mixture_evidence(rows, num_components):
    """The exact evidence of the mixture of the zoo: the sum over all assignments of the rows.

    Rows of a component have a normal-inverse-gamma prior with kappa = 1/4, a = 1, b = 1, and the
    numbers of rows have a Dirichlet-multinomial one.
    """
    found = []
    for chosen in itertools.product(range(num_components), repeat=len(rows)):
        term = gammaln(num_components) - gammaln(num_components + len(rows))
        for component in range(num_components):
            mine = rows[np.array(chosen) == component]
            count = len(mine)
            term += gammaln(count + 1)
            if count:
                kappa, a = 0.25 + count, 1 + count / 2
                mean = mine.mean()
                b = 1 + 0.5 * np.sum((mine - mean) ** 2) + 0.125 * count * mean**2 / kappa
                term += gammaln(a) - a * math.log(b) + 0.5 * math.log(0.25 / kappa)
                term -= count / 2 * math.log(2 * math.pi)
        found.append(term)
    return np.logaddexp.reduce(found)


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1])
def test_a_mixture_has_the_evidence_of_all_assignments(seed):
    """Two comparisons: 4 errors are a false-alarm rate of 1 in 8,000."""
    rows = np.array([-6.0, -5.6, -5.2, -6.3, 4.8, 5.5, 5.1, 6.0])
    result = wb.evidence(
        wb.zoo.mixture.model(2, 1), rows[:, None], wb.NestedSampling(num_live=200), seed=seed
    )
    exact = mixture_evidence(rows, 2)
    assert abs(result.log_evidence - exact) < 4 * result.std_error
    assert result.std_error < 0.3


@double_precision
def test_points_get_one_labelling_when_labels_can_be_distinguished():
    model, generator = sites_model(), np.random.default_rng(0)
    labelling = MoveLabelling(model)
    wide = np.stack([model.ravel({"x": x}) for x in generator.uniform(-9, 9, (60, 3))])
    assert np.array_equal(labelling.follow(wide, np.zeros(60)), wide)
    assert labelling.reference is None
    assert labelling.walls().standing == 0
    sites = SITES + 0.2 * generator.standard_normal((60, 3))
    near = np.stack([model.ravel({"x": x}) for x in generator.permuted(sites, axis=1)])
    # Rows of the array were permuted one by one, so all six orders are there.
    assert len({tuple(np.argsort(x)) for x in near}) == 6
    found = labelling.follow(near, np.zeros(60))
    assert len({tuple(np.argsort(x)) for x in found}) == 1
    assert labelling.walls().standing == 1
    again = labelling.follow(shuffled(model, found, generator), np.zeros(60))
    assert len({tuple(np.argsort(x)) for x in again}) == 1
    assert in_cell(model, again, labelling.reference).all()


@double_precision
def test_a_random_order_keeps_the_likelihood_and_the_components():
    model, generator = sites_model(), np.random.default_rng(1)
    x = generator.uniform(-9, 9, (200, 3))
    position = np.stack([model.ravel({"x": one}) for one in x])
    found = model.unravel(shuffled(model, position, generator))["x"]
    assert np.sort(found, axis=1) == pytest.approx(np.sort(x, axis=1))
    firsts = np.argmax(found == found.max(axis=1, keepdims=True), axis=1)
    # Each place has a third of the largest components: 200/3 +- 6.7.
    assert np.all(np.abs(np.bincount(firsts, minlength=3) - 200 / 3) < 4 * 6.7)
    one, other = (float(three_sites({"x": jnp.asarray(values[0])})) for values in (found, x))
    assert one == pytest.approx(other, rel=1e-9)
