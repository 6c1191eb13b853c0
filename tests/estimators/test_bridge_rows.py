"""What a bridge is on: rows that no mini-batch holds must not be missing from its error."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.estimators.sgais import bridge_rows
from weighbridge.estimators.sgais.anchoring import set_anchor

NUM_FEATURES = 3


def log_likelihood(p, row):
    height = row["x"] @ p["w"]
    return row["y"] * height - jax.nn.softplus(height)


MODEL = wb.Model({"w": dist.Normal(0, 1).expand([NUM_FEATURES]).to_event(1)}, log_likelihood)


def rows_with_outliers(num_rows=15_000, seed=0, share=4e-4, factor=40.0):
    """Logistic regression in which a few rows have features far from all others."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_rows, NUM_FEATURES))
    x[rng.random(num_rows) < share] *= factor
    probability = 0.5 * (1 + np.tanh(0.5 * x @ np.array([0.1, -0.1, 0.05])))
    return {"x": x, "y": (rng.random(num_rows) < probability).astype(float)}


def by_importance(data, num_draws=20_000, freedom=8.0):
    """The log evidence from a Student-t at the mode, on all rows, and its error."""
    x, y = data["x"], data["y"]
    size = x.shape[1]

    def heights(w):
        z = x @ w.T
        prior = -0.5 * np.sum(w**2, axis=1) - 0.5 * size * math.log(2 * math.pi)
        return y @ z - np.logaddexp(0, z).sum(axis=0) + prior

    mode = np.zeros(size)
    for _ in range(50):
        p = 0.5 * (1 + np.tanh(0.5 * x @ mode))
        precision = (x * (p * (1 - p))[:, None]).T @ x + np.eye(size)
        mode = mode + np.linalg.solve(precision, x.T @ (y - p) - mode)
    root = np.linalg.cholesky(np.linalg.inv(precision))
    rng = np.random.default_rng(1)
    log_weight = []
    for _ in range(num_draws // 500):
        noise = rng.normal(size=(500, size)) * np.sqrt(freedom / rng.chisquare(freedom, (500, 1)))
        log_proposal = -0.5 * (freedom + size) * np.log1p(np.sum(noise**2, axis=1) / freedom)
        log_weight.append(heights(mode + noise @ root.T) - log_proposal)
    constant = math.lgamma((freedom + size) / 2) - math.lgamma(freedom / 2)
    constant -= size / 2 * math.log(freedom * math.pi) + np.sum(np.log(np.diag(root)))
    values = np.concatenate(log_weight)
    weight = np.exp(values - values.max())
    error = np.std(weight) / weight.mean() / math.sqrt(len(weight))
    return values.max() + math.log(weight.mean()) - constant, error


@pytest.fixture(scope="module")
def one_far_row():
    """A run on rows of which one has nearly all that an anchor's second order leaves out."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(4000, NUM_FEATURES))
    x[1234] = 200.0
    data = {"x": x, "y": (rng.random(4000) < 0.5).astype(float)}
    run = wb.SGAIS(batch_size=128).start(MODEL, seed=0)
    with jax.enable_x64(True):
        for start in range(0, 4000, 1000):
            piece = {name: leaf[start : start + 1000] for name, leaf in data.items()}
            run.absorb(piece, np.ones(1000))
    return run


def test_a_row_that_no_batch_holds_is_in_the_error(one_far_row):
    run = one_far_row
    position = np.asarray(run.ledger.cloud.position).reshape(-1, NUM_FEATURES)
    centre = position.mean(axis=0)
    probes = centre + 3 * (position[:32] - centre)
    with jax.enable_x64(True):
        anchor = set_anchor(MODEL, centre, run.ledger.rows, None)
        estimate = run.preparation().of_all_rows(anchor, run.ledger.cloud, 1e-4, 0)
        # All of the batches' own noise, as if none had held the far row.
        blind = estimate._replace(noise=estimate.noise.scaled(0.0))
        found = bridge_rows.batch_error(MODEL, run.ledger.rows, blind, probes)
        values = bridge_rows.values_at(MODEL, estimate.groups, probes)
        all_rows = bridge_rows.every_row(MODEL, run.ledger.rows)
        exact = jax.jit(jax.vmap(lambda u: all_rows(MODEL, u, {"w": u})))(probes)
    assert found >= abs(np.mean(values - np.asarray(exact))) > 0


def test_a_bridge_is_on_all_rows_where_they_are_few(one_far_row):
    rows = one_far_row.ledger.rows
    span = bridge_rows.every_row(MODEL, rows)
    assert int(span.stop) == 4000
    values, weight = rows.gather(np.arange(4000))
    w = jnp.array([0.1, -0.2, 0.3])
    with jax.enable_x64(True):
        z = values["x"] @ np.asarray(w)
        exact = float(np.sum(weight * (values["y"] * z - np.logaddexp(0, z))))
        assert float(span(MODEL, w, {"w": w})) == pytest.approx(exact, rel=1e-6)


def test_rows_that_are_too_many_are_not_taken_at_once(one_far_row, monkeypatch):
    monkeypatch.setattr(bridge_rows, "ALL_AT_ONCE", 1000)
    assert bridge_rows.every_row(MODEL, one_far_row.ledger.rows) is None


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("share", "factor"), [(4e-4, 40.0), (1e-3, 15.0)])
def test_heavy_tailed_features_are_answered_within_the_error(seed, share, factor):
    data = rows_with_outliers(share=share, factor=factor)
    exact, error = by_importance(data)
    result = wb.evidence(MODEL, data, wb.SGAIS(), seed=seed, progress=False)
    assert abs(result.log_evidence - exact) < 4 * math.hypot(result.std_error, error)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_a_bridge_on_batches_is_right_within_its_error_too(seed, monkeypatch):
    monkeypatch.setattr(bridge_rows, "ALL_AT_ONCE", 1000)
    data = rows_with_outliers()
    exact, error = by_importance(data)
    result = wb.evidence(MODEL, data, wb.SGAIS(), seed=seed, progress=False)
    assert abs(result.log_evidence - exact) < 4 * math.hypot(result.std_error, error)
