"""Parallel tempering: exact for every replica, and across modes."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from tests.helpers.two_modes import BOUND, PRIOR, SIGMAS, VARIANCE, run, two_modes, z_score
from weighbridge.core.compilation import jit
from weighbridge.models.targets.density import Target
from weighbridge.models.targets.rows import Rows
from weighbridge.models.targets.total import Total
from weighbridge.sampling.kernels.parts.ladder import log_likelihood, tempered

pytestmark = pytest.mark.long

MODEL = wb.Model(PRIOR, total_log_likelihood=two_modes)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("inner", [wb.HMC(0.5, 5), wb.Metropolis(1.0)], ids=["hmc", "metropolis"])
def test_it_gives_separated_modes_their_mass(inner, seed):
    start = np.tile([-5.0, 0.0], (16, 1))  # all in the lesser mode
    kernel = wb.ParallelTempering(inner, num_adapt=300)
    positions, info, state = run(kernel, Target(MODEL, (Total(),)), start, 700, 300, seed)
    right = np.mean(positions[..., 0] > 0, axis=1)
    assert np.std(right) < 0.15
    assert abs(z_score(right, 0.7)) < BOUND
    assert abs(z_score(np.mean(positions[..., 1] ** 2, axis=1), VARIANCE)) < BOUND
    # All pairs exchange about as often, and replicas have travelled in every chain.
    swaps = info.swap_acceptance.mean((0, 1))
    assert swaps.min() > 0.5
    assert np.ptp(swaps) < 0.15
    assert info.round_trips[:, -1].min() > 20
    wanted = inner.target_acceptance
    assert np.all(np.abs(info.replica_acceptance.mean((0, 1)) - wanted) < 0.12)
    assert np.all(np.asarray(state.powers)[:, [0, -1]] == [1, 0])


def test_without_tempering_a_chain_stays_in_its_mode():
    start = np.tile([-5.0, 0.0], (16, 1))
    positions, *_ = run(wb.HMC(0.5, 5), Target(MODEL, (Total(),)), start, 500, 0, 0)
    assert np.all(positions[..., 0] < 0)


@pytest.mark.parametrize("inner", [wb.HMC(0.7, 3), wb.Metropolis(1.5), wb.Slice(2.0)])
def test_every_replica_keeps_its_distribution(inner):
    """From exact draws, after an even and an odd number of exchanges; a wrong sign shows at once.

    The prior N(0, 3^2) times N(u; 1, 1)^b is a normal of precision 1/9 + b and mean b / precision.
    """
    powers = np.array([1.0, 0.4, 0.1, 0.0])
    model = wb.Model(
        {"u": dist.Normal(0.0, 3.0).expand([1]).to_event(1)},
        lambda p, y: -0.5 * (y - p["u"][0]) ** 2,
    )
    target = Target(model, (Rows(np.ones(1), np.ones(1)),))
    kernel = wb.ParallelTempering(inner, tuple(powers), num_adapt=0)
    precision = 1 / 9 + powers
    num_chains = 8000
    drawn = np.random.default_rng(0).normal(size=(num_chains, 4, 1))
    drawn = (powers / precision)[:, None] + drawn / np.sqrt(precision)[:, None]

    @jit
    def from_exact(positions, key):
        def chain(key, positions):
            state = kernel.init(positions[0], target)._replace(
                replicas=jax.vmap(lambda u, b: inner.init(u, tempered(target, b)))(
                    positions, jnp.asarray(powers)
                ),
                log_likelihood=jax.vmap(lambda u: log_likelihood(target, u))(positions),
            )
            state = jax.lax.fori_loop(
                0, 5, lambda i, s: kernel.step(jax.random.fold_in(key, i), s, target)[0], state
            )
            return state.position, state.replicas.position

        return jax.vmap(chain)(jax.random.split(key, num_chains), positions)

    with jax.enable_x64(True):
        cold, ends = map(np.asarray, from_exact(jnp.asarray(drawn), jax.random.key(1)))
    np.testing.assert_array_equal(cold, ends[:, 0])
    standard = (ends[..., 0] - powers / precision) * np.sqrt(precision)
    assert np.all(np.abs(standard.mean(0)) < SIGMAS / np.sqrt(num_chains))
    assert np.all(np.abs(standard.var(0) - 1) < SIGMAS * np.sqrt(2 / num_chains))
    # Replicas are independent of each other.
    products = np.mean(standard[:, :-1] * standard[:, 1:], axis=0)
    assert np.all(np.abs(products) < SIGMAS / np.sqrt(num_chains))


def normal(u):
    return -0.5 * jnp.sum(u**2)


def test_neighbours_exchange_as_often_as_theory_says():
    """In two dimensions the energies at power b are exponential of rate b: 2 b' / (b + b')."""
    powers = (1.0, 0.5, 0.1)
    kernel = wb.ParallelTempering(wb.HMC(0.9, 3), powers, num_adapt=0)
    _, info, _ = run(kernel, jax.tree_util.Partial(normal), np.zeros((16, 2)), 1500, 50, 0)
    for pair, expected in enumerate((2 * 0.5 / 1.5, 2 * 0.1 / 0.6)):
        assert abs(z_score(info.swap_acceptance[..., pair].mean(1), expected)) < BOUND


def test_powers_are_placed_where_all_pairs_exchange_equally_often():
    """For a normal that is a geometric ladder, whatever it was to begin with."""
    kernel = wb.ParallelTempering(wb.HMC(0.9, 3), (1.0, 0.9, 0.8, 0.01), num_adapt=513)
    _, info, state = run(kernel, jax.tree_util.Partial(normal), np.zeros((8, 2)), 300, 520, 0)
    logs = np.log(np.asarray(state.powers)).mean(0)
    np.testing.assert_allclose(logs, np.log(0.01) * np.arange(4) / 3, atol=0.15)
    assert np.ptp(info.swap_acceptance.mean((0, 1))) < 0.1


def test_round_trips_are_counted():
    """Where the power makes no difference all exchanges are taken, and places follow a rule."""
    num, num_steps = 4, 41
    walkers, hot, trips, expected = list(range(num)), set(), 0, []
    for index in range(num_steps):
        for lower in range(index % 2, num - 1, 2):
            walkers[lower], walkers[lower + 1] = walkers[lower + 1], walkers[lower]
        hot.add(walkers[-1])
        trips += walkers[0] in hot
        hot.discard(walkers[0])
        expected.append(trips)
    model = wb.Model({"u": dist.Normal(0, 1).expand([2]).to_event(1)}, lambda p, y: 0.0)
    kernel = wb.ParallelTempering(powers=(1.0, 0.5, 0.2, 0.0))
    _, info, _ = run(kernel, Target(model, ()), np.zeros((1, 2)), num_steps, 0, 0)
    np.testing.assert_array_equal(info.round_trips[0], expected)
    assert np.all(info.swap_acceptance == 1)


def test_a_tempered_target_goes_from_prior_to_posterior():
    rows = Rows(np.array([0.5, 2.0]), np.array([1.0, 3.0]))
    model = wb.Model({"mu": dist.Normal(0, 1)}, lambda p, y: -0.5 * (y - p["mu"]) ** 2)
    target = Target(model, (rows,))
    with jax.enable_x64(True):
        position = jnp.array([0.3])
        prior, whole = model.transform(position)[1], target(position)
        for power in (0.0, 0.3, 1.0):
            expected = prior + power * (whole - prior)
            assert float(target.tempered(power)(position)) == pytest.approx(float(expected))
        found = float(log_likelihood(target, position))
        assert found == pytest.approx(float(whole - prior))
        assert float(log_likelihood(normal, position)) == pytest.approx(-0.045)


def test_an_impossible_region_is_no_trouble():
    """The likelihood is zero on the left: only the hot end may go there, and nothing breaks."""
    model = wb.Model(
        {"u": dist.Normal(0.0, 2.0).expand([1]).to_event(1)},
        total_log_likelihood=lambda p: jnp.where(p["u"][0] > 0, -0.5 * p["u"][0] ** 2, -jnp.inf),
    )
    kernel = wb.ParallelTempering(wb.Metropolis(1.0), (1.0, 0.3, 0.0), num_adapt=200)
    positions, info, _ = run(kernel, Target(model, (Total(),)), np.ones((16, 1)), 600, 200, 0)
    assert np.all(positions > 0)
    assert np.all(np.isfinite(info.swap_acceptance))
    expected = np.sqrt(2 / np.pi * 0.8)  # the mean of a half-normal of variance 1 / (1 + 1/4)
    assert abs(z_score(positions.mean((1, 2)), expected)) < BOUND


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: wb.ParallelTempering(powers=(1.0,)), "two or more"),
        (lambda: wb.ParallelTempering(powers=(0.5, 0.1)), "from exactly 1"),
        (lambda: wb.ParallelTempering(powers=(1.0, 0.5, 0.5)), "must fall"),
        (lambda: wb.ParallelTempering(powers=(1.0, 0.5, -0.1)), "0 or more"),
        (lambda: wb.ParallelTempering(wb.SGLD()), "SGLD cannot"),
        (lambda: wb.SimulatedTempering(wb.Stretch()), "Stretch cannot"),
        (lambda: wb.ParallelTempering().init(jnp.zeros(1), normal), "is flat"),
        (lambda: wb.SimulatedTempering().init(jnp.zeros(1), normal), "is flat"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(wb.MethodError, match=message):
        make()


def test_it_needs_a_gradient_if_its_kernel_does():
    assert wb.ParallelTempering(wb.HMC()).uses_gradient
    assert not wb.ParallelTempering(wb.Metropolis()).uses_gradient
    assert not wb.SimulatedTempering(wb.Slice()).uses_gradient
