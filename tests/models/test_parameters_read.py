"""Does a likelihood depend on its parameters? Only then is a flat one a reason for caution."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.models.parameters_read import reads_parameters, row_shapes

PRIOR = {"mu": dist.Normal(0.0, 1.0), "sd": dist.HalfNormal(1.0)}
ROW = row_shapes(np.zeros(4))


def normal(mean, row):
    return dist.Normal(mean, 1.0).log_prob(row)


@pytest.mark.parametrize(
    "likelihood",
    [
        lambda p, y: normal(p["mu"], y),
        lambda p, y: normal(p.copy()["mu"], y),
        lambda p, y: normal({**p}["mu"], y),
        lambda p, y: normal(p.pop("mu"), y),
        jax.jit(lambda p, y: normal(p["mu"], y)),
        lambda p, y: jnp.where(p["sd"] < 1e-9, 5.0, normal(0.0, y)),  # a needle
        lambda p, y: normal(jax.tree_util.tree_leaves(p)[0], y),
    ],
)
def test_a_likelihood_with_parameters_depends_on_them(likelihood):
    assert reads_parameters(wb.Model(PRIOR, likelihood), ROW)


@pytest.mark.parametrize(
    "likelihood",
    [
        lambda p, y: normal(0.0, y),
        lambda p, y: normal(0.0 * len(p["mu"].shape), y),  # its shape, not its value
        lambda p, y: (p["mu"] + p["sd"], normal(0.0, y))[1],
    ],
)
def test_a_null_hypothesis_does_not(likelihood):
    assert not reads_parameters(wb.Model(PRIOR, likelihood), ROW)
