"""Gibbs sampling against exact posteriors."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

import weighbridge as wb
from tests.helpers.chains import NUM_CHAINS, SIGMAS, assert_exact, run_chains
from weighbridge.models.targets.batches import Subsampled
from weighbridge.models.targets.density import Target
from weighbridge.models.targets.rows import Rows
from weighbridge.models.targets.tempered import Tempered
from weighbridge.models.targets.total import Total
from weighbridge.sampling.kernels.parts.blocks import draw_conditional

# A normal with unknown mean and variance: s2 ~ IG(a, b), mu | s2 ~ N(m, s2 / k).
A, B, M, K = 3.0, 2.0, 0.5, 0.7
DATA = np.array([1.3, -0.4, 2.2, 0.9, 1.7, 3.1])
MODEL = wb.Model(
    {"s2": dist.InverseGamma(A, B), "mu": lambda p: dist.Normal(M, jnp.sqrt(p["s2"] / K))},
    lambda p, y: dist.Normal(p["mu"], jnp.sqrt(p["s2"])).log_prob(y),
)
TARGET = Target(MODEL, (Rows(DATA, np.ones(len(DATA))),))

NUM = len(DATA)
SHAPE = A + NUM / 2
CENTRE = (K * M + DATA.sum()) / (K + NUM)
RATE = B + 0.5 * (np.sum(DATA**2) + K * M**2 - (K + NUM) * CENTRE**2)


def posterior(num, seed):
    """Exact draws of the posterior, as unconstrained positions."""
    rng = np.random.default_rng(seed)
    s2 = RATE / rng.gamma(SHAPE, size=num)
    return np.stack([np.log(s2), CENTRE + np.sqrt(s2 / (K + NUM)) * rng.normal(size=num)], 1)


def scores(positions):
    """Normal scores of draws: standard normal and independent if the draws are exact."""
    s2, mu = np.exp(positions[:, 0]), positions[:, 1]
    first = scipy.stats.norm.ppf(scipy.stats.invgamma.cdf(s2, SHAPE, scale=RATE))
    return np.stack([first, (mu - CENTRE) / np.sqrt(s2 / (K + NUM))], 1)


def gamma(key, shape):
    """Half a chi-square, which compiles faster than JAX's gamma."""
    return 0.5 * jnp.sum(jax.random.normal(key, (round(2 * shape),)) ** 2)


def draw_mu(key, parameters, data):
    num = data.shape[0]
    centre = (K * M + jnp.sum(data)) / (K + num)
    return centre + jnp.sqrt(parameters["s2"] / (K + num)) * jax.random.normal(key)


def draw_s2(key, parameters, data):
    mu = parameters["mu"]
    rate = B + 0.5 * jnp.sum((data - mu) ** 2) + 0.5 * K * (mu - M) ** 2
    return {"s2": rate / gamma(key, A + 0.5 * (data.shape[0] + 1))}


def draw_both(key, parameters, data):
    keys = jax.random.split(key)
    s2 = RATE / gamma(keys[0], SHAPE)
    return draw_mu(keys[1], {"s2": s2}, data), s2


KERNELS = {
    "sweep": wb.Gibbs({"mu": draw_mu, "s2": draw_s2}),
    "random": wb.Gibbs({"mu": draw_mu, "s2": draw_s2}, "random", np.array([0.3, 0.7])),
    "blocked": wb.Gibbs({("mu", "s2"): draw_both}),
    "kernels": wb.Gibbs({"s2": wb.Metropolis(1.2), ("mu", "s2"): wb.HMC(0.3, 3)}),
    "mixed": wb.Gibbs({"mu": draw_mu, "s2": wb.MALA(0.6)}, "random"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_exact_draws_stay_exact(name):
    start = posterior(NUM_CHAINS, 1)
    assert_exact(scores(start))
    state, info = run_chains(KERNELS[name], TARGET, start, 10, 1)
    assert_exact(scores(state.position))
    moved = np.corrcoef(state.position.T, start.T)[:2, 2:]
    assert np.abs(np.diag(moved)).max() < 0.6, "both have moved"
    assert info.undefined.sum() == 0
    assert 0.3 < info.acceptance.mean() <= 1
    # From one point to the posterior; the same program again.
    num_steps = 60 if KERNELS[name].scan == "random" else 25
    state, _ = run_chains(KERNELS[name], TARGET, np.full((NUM_CHAINS, 2), 1.0), num_steps, 2)
    assert_exact(scores(state.position))


def test_moments_of_a_long_chain_are_those_of_the_posterior():
    state, _ = run_chains(KERNELS["sweep"], TARGET, np.zeros((NUM_CHAINS, 2)), 60, 3)
    s2, mu = np.exp(state.position[:, 0]), state.position[:, 1]
    error = 1 / np.sqrt(NUM_CHAINS)
    mean = RATE / (SHAPE - 1)
    spread = mean / np.sqrt(SHAPE - 2)
    assert abs(s2.mean() - mean) < SIGMAS * spread * error
    assert abs(mu.mean() - CENTRE) < SIGMAS * np.sqrt(mean / (K + NUM)) * error
    expected = mean / (K + NUM)  # the variance of mu
    squares = (mu - CENTRE) ** 2
    assert abs(squares.mean() - expected) < SIGMAS * squares.std() * error


def test_a_conditional_of_another_posterior_is_seen():
    """With the wrong number of degrees of freedom the same test fails by far."""

    def wrong(key, parameters, data):
        return {"s2": draw_s2(key, parameters, data[:-1])["s2"]}

    kernel = wb.Gibbs({"mu": draw_mu, "s2": wrong})
    state, _ = run_chains(kernel, TARGET, posterior(NUM_CHAINS, 1), 10, 1)
    with pytest.raises(AssertionError):
        assert_exact(scores(state.position))


def test_random_scan_updates_one_block_with_its_weight():
    start = posterior(NUM_CHAINS, 4)
    state, _ = run_chains(KERNELS["random"], TARGET, start, 1, 4)
    changed = np.abs(state.position - start) > 1e-12
    assert np.all(changed.sum(1) == 1)
    share = changed[:, 1].mean()  # of mu
    assert abs(share - 0.3) < SIGMAS * np.sqrt(0.21 / NUM_CHAINS)


# --- a support that moves with another parameter ------------------------------------------------

MOVING = wb.Model(
    {"a": dist.Gamma(2.0, 1.0), "b": lambda p: dist.Uniform(0.0, p["a"])}, lambda p, row: 0.0
)


def draw_a(key, parameters):
    """a exp(-a) / a above b."""
    return parameters["b"] + jax.random.exponential(key)


def draw_b(key, parameters):
    return parameters["a"] * jax.random.uniform(key)


def test_other_parameters_keep_their_values_where_their_support_moves():
    rng = np.random.default_rng(0)
    b = rng.exponential(size=NUM_CHAINS)
    a = b + rng.exponential(size=NUM_CHAINS)
    start = np.stack([np.log(a), np.log(b / (a - b))], 1)
    kernel = wb.Gibbs({"a": draw_a, "b": draw_b})
    state, info = run_chains(kernel, Target(MOVING, ()), start, 5, 0)
    a = np.exp(state.position[:, 0])
    b = a * scipy.special.expit(state.position[:, 1])
    uniforms = np.stack([np.exp(-b), np.exp(-(a - b))], 1)
    assert_exact(scipy.stats.norm.ppf(uniforms))
    assert info.undefined.sum() == 0
    with jax.enable_x64(True):
        only_a = wb.Gibbs({"a": draw_a, "b": lambda key, parameters: parameters["b"]})
        target = Target(MOVING, ())
        before = only_a.init(jnp.array([1.0, 0.3]), target)
        after, _ = only_a.step(jax.random.key(0), before, target)
        values = [MOVING.transform(s.position)[0] for s in (before, after)]
    assert abs(float(values[0]["a"] - values[1]["a"])) > 1e-3
    assert float(values[0]["b"]) == pytest.approx(float(values[1]["b"]), rel=1e-12)


def test_coordinates_far_out_stay_where_another_block_is_drawn():
    """At 45 a probability is one but for rounding: going there and back would lose it."""
    model = wb.Model({"p": dist.Beta(2.0, 2.0), "x": dist.Normal(0.0, 1.0)}, lambda p, row: 0.0)
    target = Target(model, ())
    kernel = wb.Gibbs({"x": lambda key, p: jax.random.normal(key), "p": wb.Slice()}, "random")
    with jax.enable_x64(True):
        state = kernel.init(jnp.array([45.0, 0.0]), target)
        step = jax.jit(lambda key: kernel._update(target, 0, key, state))
        after, info = step(jax.random.key(0))
    assert float(after.position[0]) == 45.0
    assert float(after.position[1]) != 0.0
    assert int(info.undefined) == 0


# --- what goes wrong ----------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_a_draw_that_is_none_leaves_the_state_and_is_counted(bad):
    kernel = wb.Gibbs({"mu": draw_mu, "s2": lambda key, parameters, data: bad})
    with jax.enable_x64(True):
        start = kernel.init(jnp.array([0.2, 0.4]), TARGET)
        state, info = jax.jit(lambda state: kernel.step(jax.random.key(0), state, TARGET))(start)
    assert int(info.undefined) == 1
    assert float(state.position[0]) == 0.2
    assert float(state.position[1]) != 0.4, "the other block is updated"


SIMPLEX = np.array([0.2, 0.5, 0.3])


def test_a_draw_outside_a_simplex_is_none():
    model = wb.Model({"w": dist.Dirichlet(np.ones(3))}, lambda p, row: 0.0)
    with jax.enable_x64(True):
        target, start = Target(model, ()), jnp.array([0.3, -0.2])
        for value, undefined in ((SIMPLEX, 0), (SIMPLEX * 1.1, 1)):
            kernel = wb.Gibbs({"w": lambda key, parameters, value=value: value})
            state, info = kernel.step(jax.random.key(0), kernel.init(start, target), target)
            assert int(info.undefined) == undefined
            expected = model.flatten({"w": value}) if not undefined else start
            np.testing.assert_allclose(state.position, expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({},), "with at least one"),
        (({"mu": 3.0},), "needs a function conditional"),
        (({("mu", 1): draw_mu},), "a name or a tuple of names"),
        (({"mu": draw_mu}, "sideways"), "scan must be sweep or random"),
        (({"mu": draw_mu}, "sweep", [1.0]), 'use scan="random"'),
        (({"mu": draw_mu}, "random", [1.0, 2.0]), "1 positive numbers"),
        (({"mu": draw_mu}, "random", [-1.0]), "1 positive numbers"),
        (({"mu": wb.SGLD()},), "works on mini-batches"),
        (({"mu": wb.Stretch()},), "or on an ensemble"),
    ],
)
def test_bad_blocks_are_named(arguments, message):
    with pytest.raises(wb.MethodError, match=message):
        wb.Gibbs(*arguments)


def test_blocks_that_do_not_fit_the_model_are_named():
    position, key = jnp.zeros(2), jax.random.key(0)

    def run(blocks, target=TARGET):
        kernel = wb.Gibbs(blocks)
        return kernel.step(key, kernel.init(position, target), target)

    with jax.enable_x64(True):
        for blocks, message in (
            ({"mu": draw_mu}, r"\['s2'\] are in no block"),
            ({"mu": draw_mu, "s": draw_s2}, r"Blocks name \['s'\]"),
            ({"mu": lambda k, p, d: jnp.zeros(2), "s2": draw_s2}, r"returned shape \(2,\)"),
            ({"mu": lambda k, p, d: {"m": 0.0}, "s2": draw_s2}, r"returned values for \['m'\]"),
            ({("mu", "s2"): lambda k, p, d: 1.0}, "a value for each of its 2 parameters"),
        ):
            with pytest.raises(wb.MethodError, match=message):
                run(blocks)
        rows = TARGET.terms[0]
        for term in (Tempered(rows, 0.5), Subsampled(rows, key, 2)):
            with pytest.raises(wb.MethodError, match="cannot be used on mini-batches"):
                run({"mu": draw_mu, "s2": draw_s2}, Target(MODEL, (term,)))
        with pytest.raises(wb.MethodError, match="no model with names"):
            run({"mu": draw_mu, "s2": draw_s2}, lambda u: jnp.sum(u))


# --- kernels within blocks ----------------------------------------------------------------------


def test_a_kernel_in_a_block_keeps_what_it_has_learned_and_changes_without_a_new_trace():
    traces = []

    @jax.jit
    def step(kernel, key, state):
        traces.append(1)
        return kernel.step(key, state, TARGET)

    def kernel(step_size):
        return wb.Gibbs({"mu": draw_mu, "s2": wb.AdaptiveMetropolis(jnp.asarray(step_size))})

    with jax.enable_x64(True):
        state = kernel(0.5).init(jnp.array([0.2, 0.4]), TARGET)
        for index in range(30):
            state, _ = step(kernel(0.5 + 0.01 * index), jax.random.key(index), state)
    inner = state.states[1]
    assert len(traces) == 1
    assert int(inner.num_steps) == 30
    assert float(inner.root[0, 0]) > 0
    assert float(inner.position[0]) == float(state.position[0])
    assert kernel(0.5).uses_gradient is False
    assert KERNELS["mixed"].uses_gradient is True


def test_a_model_of_all_the_data_gives_them_to_its_conditionals():
    def log_likelihood(parameters, data):
        return -0.5 * jnp.sum((data["y"] - parameters["x"]) ** 2)

    model = wb.Model({"x": dist.Normal(0.0, 1.0)}, total_log_likelihood=log_likelihood)
    kernel = wb.Gibbs({"x": lambda key, parameters, data: jnp.sum(data["y"])})
    with jax.enable_x64(True):
        target = Target(model, (Total({"y": np.array([1.0, 2.5])}),))
        state, _ = kernel.step(jax.random.key(0), kernel.init(jnp.zeros(1), target), target)
    assert float(state.position[0]) == 3.5


def test_conditionals_see_the_weights_of_rows():
    """Rows that count several times do so in the conditional too."""
    model = wb.Model({"x": dist.Normal(0.0, 1.0)}, lambda p, row: -0.5 * (row["y"] - p["x"]) ** 2)
    values, weight = {"y": np.array([1.0, 2.5])}, np.array([1.0, 3.0])
    kernel = wb.Gibbs({"x": lambda key, parameters, data: data["weight"] @ data["y"]})
    with jax.enable_x64(True):
        target = Target(model, (Rows(values, weight),))
        state, _ = kernel.step(jax.random.key(0), kernel.init(jnp.zeros(1), target), target)
    assert float(state.position[0]) == 8.5


def test_a_block_around_a_parameter_that_its_own_scale_moves():
    """The value between keeps its value, and so the coordinates of what hangs on it are right."""

    def scaled(loc, scale):
        return dist.TransformedDistribution(
            dist.Normal(0.0, 1.0), dist.transforms.AffineTransform(loc, scale)
        )

    model = wb.Model(
        {
            "s": dist.HalfNormal(1.0),
            "mu": lambda p: scaled(0.0, p["s"]),
            "c": lambda p: scaled(p["mu"], 1.0),
        },
        lambda p, y: -((y - p["c"]) ** 2),
    )
    told = {"s": 0.3, "c": -1.5}
    with jax.enable_x64(True):
        position = jnp.array([0.7, 0.4, -0.2])
        before = model.transform(position)[0]
        target = Target(model, (Rows(np.zeros(2), np.ones(2)),))
        moved, defined = draw_conditional(
            lambda key, p: told, ("s", "c"), jax.random.key(0), position, target
        )
        after = model.transform(moved)[0]
    assert bool(defined)
    for name, value in (told | {"mu": float(before["mu"])}).items():
        assert float(after[name]) == pytest.approx(value, rel=1e-9)


BADLY_CHOSEN = {"w": wb.MALA(5.0), "b": wb.Metropolis(1e-4)}


@pytest.mark.parametrize("scan", ["sweep", "random"])
def test_the_warm_up_tunes_the_kernel_of_every_block(scan, tmp_path):
    """One step size is far too long, one far too short: both end near what their kernel wants."""
    model = wb.zoo.linear.model(2)
    data = wb.zoo.linear.simulate(200, num_features=2, seed=3)
    options = {"num_samples": 400, "num_chains": 2, "seed": 1}
    kernel = wb.Gibbs(BADLY_CHOSEN, scan=scan)
    as_given = wb.sample(model, data, kernel, num_warmup=0, **options)
    found = wb.sample(model, data, kernel, num_warmup=600, **options)
    before, after = (
        np.nanmean(drawn.stats["block_acceptance"], axis=(0, 1)) for drawn in (as_given, found)
    )
    assert before[0] < 0.05
    assert before[1] > 0.95
    assert after == pytest.approx([0.574, 0.3], abs=0.12)
    step_sizes = [float(found.kernel.blocks[name].step_size) for name in ("w", "b")]
    assert 0.01 < step_sizes[0] < 1
    assert 0.01 < step_sizes[1] < 1

    found.save(tmp_path / "draws")
    resumed = wb.sample(model, data, kernel, num_samples=20, resume=tmp_path / "draws")
    np.testing.assert_array_equal(resumed.positions[:, 400:], found.extend(20).positions[:, 400:])


def test_a_warm_up_may_say_which_acceptance_all_blocks_are_tuned_to():
    model = wb.zoo.linear.model(2)
    data = wb.zoo.linear.simulate(200, num_features=2, seed=3)
    blocks = {"w": wb.MALA(5.0), "b": wb.Slice()}
    found = wb.sample(
        model,
        data,
        wb.Gibbs(blocks),
        num_samples=400,
        num_warmup=400,
        num_chains=2,
        warmup=wb.Warmup(target_acceptance=0.85),
    )
    assert found.stats["block_acceptance"][..., 0].mean() == pytest.approx(0.85, abs=0.1)
