"""``wb.sample`` as users run it: right moments, saved and continued bit for bit, clear errors."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.sampling.chain import ChainRun

pytestmark = pytest.mark.long

LINEAR = wb.zoo.linear.model(2)
DATA = wb.zoo.linear.simulate(200, num_features=2, seed=3)


def exact_linear():
    """Mean and covariance of the posterior: prior and noise are standard normal."""
    design = np.column_stack([DATA["x"], np.ones(200)])
    covariance = np.linalg.inv(np.eye(3) + design.T @ design)
    return covariance @ design.T @ DATA["y"], covariance


def coordinates(posterior):
    return np.concatenate([posterior.samples["w"], posterior.samples["b"][..., None]], axis=-1)


@pytest.fixture(scope="module")
def posterior():
    return wb.sample(LINEAR, DATA, num_samples=500, num_warmup=300, seed=1)


KERNELS = {
    "nuts": (wb.NUTS(), {}),
    "nuts-dense": (wb.NUTS(), {"warmup": wb.Warmup(metric="dense")}),
    "nuts-unit": (wb.NUTS(), {"warmup": wb.Warmup("unit", target_acceptance=0.7)}),
    "xhmc": (wb.XHMC(), {}),
    "hmc": (wb.HMC(0.1, 8), {}),
    "metropolis": (wb.Metropolis(0.3), {"thin": 5}),
    "slice": (wb.Slice(0.3), {}),
    "stretch": (wb.Stretch(), {}),
}


@pytest.mark.parametrize("name", KERNELS)
def test_moments_are_exact(name):
    kernel, options = KERNELS[name]
    found = wb.sample(LINEAR, DATA, kernel, num_samples=600, num_warmup=400, seed=2, **options)
    mean, covariance = exact_linear()
    draws = coordinates(found)
    white = (draws - mean) @ np.linalg.inv(np.linalg.cholesky(covariance)).T
    for power, exact in ((1, 0.0), (2, 1.0)):
        for k in range(3):
            error = wb.mcse(white[..., k] ** power)
            assert abs(np.mean(white[..., k] ** power) - exact) < 4.5 * error, (power, k)
    assert np.all(np.isfinite(found.positions))


def test_statistics_are_told(posterior):
    assert set(posterior.stats) >= {"acceptance", "divergent", "energy", "step_size", "tree_depth"}
    assert all(values.shape[:2] == (4, 500) for values in posterior.stats.values())
    assert 0.7 < posterior.stats["acceptance"].mean() < 0.95  # 0.8 was asked for
    assert posterior.warnings == ()
    assert posterior.samples["w"].shape == (4, 500, 2)
    assert posterior.samples["w"].dtype == np.float64
    np.testing.assert_allclose(
        LINEAR.unravel(posterior.positions)["b"], posterior.samples["b"], rtol=0
    )
    # Chains are not copies of each other.
    assert len({float(chain[0, 0]) for chain in posterior.positions}) == 4
    assert "4 chains of 500 draws by NUTS" in str(posterior)


def test_the_same_seed_gives_the_same_draws(posterior):
    again = wb.sample(LINEAR, DATA, num_samples=500, num_warmup=300, seed=1)
    np.testing.assert_array_equal(again.positions, posterior.positions)
    other = wb.sample(LINEAR, DATA, num_samples=500, num_warmup=300, seed=2)
    assert not np.array_equal(other.positions, posterior.positions)


def test_a_run_goes_on_bit_for_bit(posterior, tmp_path):
    begun = wb.sample(LINEAR, DATA, num_samples=200, num_warmup=300, seed=1)
    begun.save(tmp_path / "run")
    loaded = wb.Posterior.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.positions, begun.positions)
    assert str(loaded).splitlines()[1:] == str(begun).splitlines()[1:]
    with pytest.raises(wb.MethodError, match="resume"):
        loaded.extend(10)
    for resumed in (
        begun.extend(300),
        wb.sample(LINEAR, DATA, num_samples=300, resume=loaded),
        wb.sample(LINEAR, DATA, num_samples=300, resume=tmp_path / "run"),
    ):
        np.testing.assert_array_equal(resumed.positions, posterior.positions)
        for name, values in posterior.stats.items():
            np.testing.assert_array_equal(resumed.stats[name], values)
    twice = wb.sample(LINEAR, DATA, num_samples=100, resume=loaded).extend(200)
    np.testing.assert_array_equal(twice.positions, posterior.positions)


def test_a_run_is_not_resumed_with_something_else(posterior):
    other = {name: values + 1.0 for name, values in DATA.items()}
    with pytest.raises(wb.DataError, match="other data"):
        wb.sample(LINEAR, other, resume=posterior)
    with pytest.raises(wb.ModelError, match="another model"):
        wb.sample(wb.zoo.linear.model(2, noise=2.0), DATA, resume=posterior)
    with pytest.raises(wb.MethodError, match="NUTS"):
        wb.sample(LINEAR, DATA, wb.HMC(), resume=posterior)


def test_blocks_do_not_change_the_numbers(posterior, monkeypatch):
    monkeypatch.setattr("weighbridge.sampling.chain.BLOCK_SECONDS", 1e-9)  # one step at a time
    slow = wb.sample(LINEAR, DATA, num_samples=20, num_warmup=300, seed=1)
    np.testing.assert_array_equal(slow.positions, posterior.positions[:, :20])


def test_thinning_keeps_every_so_many():
    whole = wb.sample(LINEAR, DATA, num_samples=30, num_warmup=50, num_chains=2)
    thinned = wb.sample(LINEAR, DATA, num_samples=10, num_warmup=50, num_chains=2, thin=3)
    np.testing.assert_array_equal(thinned.positions, whole.positions[:, 2::3])


HEAVY = wb.Model({"x": dist.Cauchy(0, 1).expand([20]).to_event(1)}, lambda p, y: 0.0 * y)


def test_the_energy_of_every_step_counts_also_with_thin(tmp_path):
    """Energies of thinned draws look independent: E-BFMI is about 2, whatever the chain does."""
    nothing, options = np.zeros(1), {"num_warmup": 300, "num_chains": 2, "seed": 0}
    whole = wb.sample(HEAVY, nothing, num_samples=1000, **options)
    thinned = wb.sample(HEAVY, nothing, num_samples=50, thin=20, **options)
    assert "step_energies" not in whole.stats
    np.testing.assert_array_equal(thinned.positions, whole.positions[:, 19::20])
    fractions = wb.diagnostics.energy_fraction(whole.stats["energy"])
    assert fractions.min() < 0.3
    energy, steps = thinned.stats["energy"], thinned.stats["step_energies"]
    assert wb.diagnostics.energy_fraction(energy).min() > 1
    np.testing.assert_allclose(wb.diagnostics.energy_fraction(energy, steps), fractions, rtol=0.01)
    for found in (whole, thinned):
        assert any("Low E-BFMI" in warning for warning in found.warnings)
    thinned.plot_energy()

    first = wb.sample(HEAVY, nothing, num_samples=20, thin=20, **options)
    first.save(tmp_path / "draws")
    resumed = wb.sample(HEAVY, nothing, num_samples=30, resume=tmp_path / "draws")
    for found in (resumed, first.extend(30)):
        np.testing.assert_array_equal(found.stats["step_energies"], steps)


def test_the_tuning_can_be_used_again(posterior):
    assert posterior.kernel.scale.shape == (3,)
    short = wb.sample(LINEAR, DATA, posterior.kernel, num_samples=200, num_warmup=0, seed=5)
    assert 0.6 < short.stats["acceptance"].mean() < 0.97
    np.testing.assert_array_equal(short.kernel.scale, posterior.kernel.scale)


def test_other_numbers_compile_nothing_new(posterior, compiled):
    compiled.clear()
    other = {name: values + 0.1 for name, values in DATA.items()}
    wb.sample(LINEAR, other, num_samples=77, num_warmup=222, num_chains=3, seed=9)
    assert compiled == []


def test_walkers_of_an_ensemble_are_chains():
    found = wb.sample(LINEAR, DATA, wb.Stretch(), num_samples=50, num_warmup=50, num_chains=2)
    walkers = found.num_chains // 2
    assert walkers >= 8
    assert found.samples["w"].shape == (2 * walkers, 50, 2)
    assert found.stats["acceptance"].shape == (2 * walkers, 50)


def test_kernels_on_batches_take_steps_for_one_row():
    found = wb.sample(
        LINEAR, DATA, wb.SGHMC(0.05, 0.1), num_samples=2000, num_warmup=500, num_chains=4, thin=5
    )
    mean, covariance = exact_linear()
    draws = coordinates(found).reshape(-1, 3)
    # Their bias is of the order of the step size: near, and not exact.
    assert np.all(np.abs(draws.mean(0) - mean) < 0.5 * np.sqrt(np.diag(covariance)))
    ratio = draws.var(0) / np.diag(covariance)
    assert np.all((ratio > 0.5) & (ratio < 2.0)), ratio


def test_models_with_bounds_and_dependent_priors():
    model = wb.Model(
        {"s2": dist.InverseGamma(3.0, 2.0), "mu": lambda p: dist.Normal(0.0, jnp.sqrt(p["s2"]))},
        lambda p, y: dist.Normal(p["mu"], jnp.sqrt(p["s2"])).log_prob(y),
    )
    rows = np.random.default_rng(0).normal(1.0, 2.0, size=30)
    found = wb.sample(model, rows, num_samples=1000, num_warmup=500)
    # Normal-inverse-gamma: shape 3 + n/2, scale 2 + S/2.
    centre = rows.sum() / 31
    scale = 2.0 + 0.5 * (np.sum(rows**2) - 31 * centre**2)
    shape = 3.0 + 15
    variance = found.samples["s2"]
    assert abs(variance.mean() - scale / (shape - 1)) < 4.5 * wb.mcse(variance)
    assert abs(found.samples["mu"].mean() - centre) < 4.5 * wb.mcse(found.samples["mu"])


def test_a_likelihood_that_does_not_factorise():
    model = wb.Model(
        {"u": dist.Normal(0.0, 1.0).expand([2]).to_event(1)},
        total_log_likelihood=lambda p: -0.5 * jnp.sum(p["u"]) ** 2,
    )
    found = wb.sample(model, num_samples=500, num_warmup=300)
    total = found.samples["u"].sum(-1)
    assert abs(np.mean(total**2) - 2 / 3) < 4.5 * wb.mcse(total**2)


def test_the_centred_funnel_is_flagged_and_the_other_is_exact():
    def centred(p):
        return jnp.sum(dist.Normal(0.0, jnp.exp(p["v"] / 2)).log_prob(p["x"])) + 0.5 * jnp.sum(
            (p["x"] / 100.0) ** 2
        )

    wide = dist.Normal(0.0, 100.0).expand([9]).to_event(1)
    bad = wb.Model({"v": dist.Normal(0.0, 3.0), "x": wide}, total_log_likelihood=centred)
    found = wb.sample(bad, num_samples=500, num_warmup=500)
    assert any("diverg" in warning for warning in found.warnings)
    good = wb.Model(
        {"v": dist.Normal(0.0, 3.0), "z": dist.Normal(0.0, 1.0).expand([9]).to_event(1)},
        total_log_likelihood=lambda p: 0.0 * p["v"],
    )
    found = wb.sample(good, num_samples=500, num_warmup=500)
    assert not any("diverg" in warning for warning in found.warnings)
    v = found.samples["v"]
    assert abs(v.mean()) < 4.5 * wb.mcse(v)
    assert abs(np.mean(v**2) - 9.0) < 4.5 * wb.mcse(v**2)


def test_predictions_plots_and_arviz(posterior):
    line = posterior.predict(lambda p, row: row["x"] @ p["w"] + p["b"], DATA, num_draws=400)
    mean, _ = exact_linear()
    fitted = np.column_stack([DATA["x"], np.ones(200)]) @ mean
    assert np.max(np.abs(line.mean - fitted)) < 0.1
    assert len(posterior.plot().axes) == 9
    assert len(posterior.plot_posterior(["w"]).axes) == 3
    tree = posterior.to_arviz()
    assert tree["posterior"]["w"].shape == (4, 500, 2)
    assert tree["sample_stats"]["diverging"].shape == (4, 500)


def test_divergent_draws_are_marked(posterior):
    marked = {**posterior.stats, "divergent": np.zeros((4, 500), bool)}
    marked["divergent"][1, 7] = True
    changed = wb.Posterior(posterior.samples, posterior.positions, marked)
    assert "1 divergent" in changed.plot().get_suptitle()
    assert "1 divergent" in changed.plot_posterior().get_suptitle()


BAD = {
    "no draws": ({"num_samples": 0}, "num_samples"),
    "half a draw": ({"num_samples": 1.5}, "num_samples"),
    "warm-up below zero": ({"num_warmup": -1}, "num_warmup"),
    "no chains": ({"num_chains": 0}, "num_chains"),
    "no thinning": ({"thin": 0}, "thin"),
    "kernel": ({"kernel": "nuts"}, "kernel"),
    "metric": ({"initial": np.zeros((4, 2))}, "initial"),
    "too few points": ({"initial": np.zeros((3, 3))}, "3 initial points"),
    "too few named": ({"initial": {"w": np.zeros((1, 2)), "b": np.zeros(1)}}, "1 initial points"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused(case):
    options, words = BAD[case]
    with pytest.raises(wb.MethodError, match=words):
        wb.sample(LINEAR, DATA, **options)


def test_warmups_that_make_no_sense_are_refused():
    with pytest.raises(wb.MethodError, match="metric"):
        wb.Warmup(metric="round")
    with pytest.raises(wb.MethodError, match="target_acceptance"):
        wb.Warmup(target_acceptance=1.5)


def test_data_are_needed_and_checked():
    with pytest.raises(wb.DataError, match="data"):
        wb.sample(LINEAR)
    broken = {"x": DATA["x"], "y": np.where(np.arange(200) == 7, np.nan, DATA["y"])}
    with pytest.raises(wb.DataError, match="7"):
        wb.sample(LINEAR, broken)
    kept = wb.sample(LINEAR, broken, on_bad_row="skip", num_samples=5, num_warmup=5)
    assert kept.num_samples == 5


def numpy_log_likelihood(p):
    """A branch and a loop that JAX cannot trace; exact posterior N(0.8, 0.2)."""
    return float(sum(-0.5 * (float(p["u"]) - y) ** 2 for y in (0.5, 1.5, 0.5, 1.5)))


@pytest.mark.parametrize(
    "kernel",
    [
        wb.Slice(),
        wb.Metropolis(0.8),
        wb.Stretch(),
        wb.ParallelTempering(wb.Metropolis(), num_adapt=100),
    ],
)
def test_a_likelihood_on_the_host_is_sampled_by_kernels_without_gradients(kernel):
    model = wb.Model({"u": dist.Normal(0.0, 1.0)}, total_log_likelihood=numpy_log_likelihood)
    compiled = wb.Model(
        {"u": dist.Normal(0.0, 1.0)},
        total_log_likelihood=lambda p: -0.5 * jnp.sum((p["u"] - jnp.array([0.5, 1.5] * 2)) ** 2),
    )
    settings = {"num_samples": 200, "num_warmup": 100, "num_chains": 2, "seed": 3}
    found = wb.sample(model, kernel=kernel, **settings)
    same = wb.sample(compiled, kernel=kernel, **settings)
    np.testing.assert_allclose(found.samples["u"], same.samples["u"], atol=1e-9)


ADAPTING = {
    "population": wb.PopulationMonteCarlo(2, num_adapt=60),
    "parallel-tempering": wb.ParallelTempering(wb.Metropolis(), num_adapt=60),
    "simulated-tempering": wb.SimulatedTempering(wb.Metropolis(), num_adapt=60),
}


@pytest.mark.parametrize("name", ADAPTING)
def test_a_kernel_that_still_adapts_is_not_drawn_from(name):
    kernel, options = ADAPTING[name], {"num_samples": 10, "num_chains": 1}
    with pytest.raises(wb.MethodError, match=r"adapts for 60 steps.*num_warmup=60"):
        wb.sample(LINEAR, DATA, kernel, num_warmup=59, **options)
    drawn = wb.sample(LINEAR, DATA, kernel, num_warmup=60, **options)
    more = wb.sample(LINEAR, DATA, kernel, num_warmup=0, resume=drawn, num_samples=5)
    assert more.num_samples == 15  # its chains have adapted already


def test_a_kernel_in_a_block_that_still_adapts_is_not_drawn_from():
    inner = wb.ParallelTempering(wb.Metropolis(), (1.0, 0.5, 0.2), num_adapt=60)
    blocks = {"w": inner, "b": wb.Slice()}
    with pytest.raises(wb.MethodError, match="Gibbs adapts for 60 steps"):
        wb.sample(LINEAR, DATA, wb.Gibbs(blocks), num_warmup=59)
    by_chance = wb.Gibbs(blocks, scan="random", weights=(1.0, 3.0))
    assert by_chance.num_adapt == 4 * (2 * 60 + 20)


def test_a_likelihood_on_the_host_has_no_gradients():
    model = wb.Model({"u": dist.Normal(0.0, 1.0)}, total_log_likelihood=numpy_log_likelihood)
    with pytest.raises(wb.ModelError, match=r"NUTS needs gradients.*wb\.Slice"):
        wb.sample(model)


def test_an_error_of_a_likelihood_on_the_host_is_told():
    calls = []

    def fails_later(p):
        calls.append(1)
        if len(calls) > 60:
            raise ZeroDivisionError("the instrument is off")
        return float(-(p["u"] ** 2))

    model = wb.Model({"u": dist.Normal(0.0, 1.0)}, total_log_likelihood=fails_later, on_host=True)
    with pytest.raises(ZeroDivisionError, match="the instrument is off"):
        wb.sample(model, kernel=wb.Metropolis(), num_samples=100, num_warmup=0, num_chains=1)


def test_a_density_that_is_nowhere_finite_is_told():
    model = wb.Model({"u": dist.Normal(0.0, 1.0)}, total_log_likelihood=lambda p: jnp.nan * p["u"])
    with pytest.raises(wb.ModelError, match="check_model"):
        wb.sample(model)


def test_starting_points_are_used():
    start = np.full((2, 3), 1.5)
    found = wb.sample(LINEAR, DATA, wb.Metropolis(1e-9), num_samples=2, num_warmup=0,
                      num_chains=2, initial=start)  # fmt: skip
    np.testing.assert_allclose(found.positions, 1.5, atol=1e-6)
    named = {"w": np.full((2, 2), 1.5), "b": np.full(2, 1.5)}
    again = wb.sample(LINEAR, DATA, wb.Metropolis(1e-9), num_samples=2, num_warmup=0,
                      num_chains=2, initial=named)  # fmt: skip
    np.testing.assert_allclose(again.positions, found.positions)


@pytest.fixture
def interrupts():
    """SIGINT as Python has it, also where the shell that started the tests ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_gives_what_there_is(monkeypatch):
    taken = []
    original = ChainRun._advance

    def interrupted(self, *args, kept=False, **options):
        if kept and not taken:
            taken.append(self.number)
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        return original(self, *args, kept=kept, **options)

    monkeypatch.setattr(ChainRun, "_advance", interrupted)
    # Chains that no core is free for have not begun by then.
    chains = min(2, len(os.sched_getaffinity(0)))
    found = wb.sample(LINEAR, DATA, num_samples=10_000_000, num_warmup=100, num_chains=chains)
    assert 0 < found.num_samples < 10_000_000
    assert "interrupted" in found.warnings[0]
    assert np.all(np.isfinite(found.positions))


def test_an_interrupt_in_the_warm_up_is_an_interrupt():
    program = textwrap.dedent("""
        import os, signal, threading, weighbridge as wb
        signal.signal(signal.SIGINT, signal.default_int_handler)
        data = wb.zoo.gaussian.simulate(50, seed=1)
        threading.Timer(3.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        wb.sample(wb.zoo.gaussian.model(), data, num_warmup=10_000_000)
    """)
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.returncode != 0
    assert "KeyboardInterrupt" in found.stderr


def test_a_damaged_file_is_refused(posterior, tmp_path):
    path = tmp_path / "run"
    posterior.save(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(wb.CheckpointError):
        wb.Posterior.load(path)


def test_the_users_precision_is_left_alone(posterior):
    assert not jax.config.jax_enable_x64
    assert posterior.positions.dtype == np.float64


def test_a_conditional_that_is_not_a_number_ends_the_run():
    def broken(key, parameters, data):
        return jnp.where(parameters["b"] > -1e9, jnp.nan, 0.0)

    kernel = wb.Gibbs({"b": broken, "w": wb.HMC(0.1, 3)})
    with pytest.raises(wb.ModelError, match="conditional"):
        wb.sample(LINEAR, DATA, kernel, num_samples=10, num_warmup=10)
