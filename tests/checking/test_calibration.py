"""Simulation-based calibration: right samplers give flat ranks, wrong models do not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weighbridge as wb
from weighbridge.checking import calibration

pytestmark = pytest.mark.long

MODEL = wb.zoo.gaussian.model()
NUM_ROWS = 10


def simulate(parameters, generator):
    return generator.normal(parameters["mu"], 1.0, NUM_ROWS)


def conditional(key, parameters, data):
    """The posterior itself: prior and noise are standard normal."""
    precision = 1.0 + NUM_ROWS
    return jnp.sum(data) / precision + jax.random.normal(key) / jnp.sqrt(precision)


# Each is right with probability 0.99 at a fixed seed: which seeds come out is known.
KERNELS = {
    "nuts": (wb.NUTS(), 2),
    "xhmc": (wb.XHMC(), 2),
    "hmc": (wb.HMC(0.2, 3, jitter=0.3), 3),
    "windowed-hmc": (wb.WindowedHMC(0.2, 4), 3),
    "gibbs": (wb.Gibbs({"mu": conditional}), 1),
    "adaptive-metropolis": (wb.AdaptiveMetropolis(), 15),
    "slice": (wb.Slice(0.5), 3),
    "stretch": (wb.Stretch(), 5),
    "metropolis": (wb.Metropolis(0.5), 12),
}


@pytest.mark.parametrize("name", KERNELS)
def test_ranks_of_right_samplers_are_uniform(name):
    kernel, thin = KERNELS[name]
    found = wb.sbc(MODEL, simulate, kernel, num_simulations=160, num_samples=19,
                   num_warmup=60, thin=thin, seed=10)  # fmt: skip
    assert found.is_uniform, str(found)


def test_a_wrong_model_is_found_out():
    wrong = wb.zoo.gaussian.model(noise=0.3)  # too narrow a posterior: ranks pile up at the ends
    found = wb.sbc(wrong, simulate, num_simulations=100, num_samples=19, num_warmup=60, seed=1)
    assert not found.is_uniform
    assert "NOT uniform" in str(found)


def test_a_biased_simulator_is_found_out():
    found = wb.sbc(
        MODEL,
        lambda p, rng: simulate(p, rng) + 0.5,
        num_simulations=100,
        num_samples=19,
        num_warmup=60,
    )
    assert not found.is_uniform


def test_draws_that_depend_on_each_other_are_told():
    options = {"num_simulations": 40, "num_samples": 19, "num_warmup": 60}
    found = wb.sbc(MODEL, simulate, wb.Metropolis(0.5), thin=1, **options)
    assert found.correlation > 0.4
    assert "raise thin" in str(found)
    assert abs(wb.sbc(MODEL, simulate, thin=4, **options).correlation) < 0.15


def test_uniform_ranks_have_uniform_p_values():
    rng = np.random.default_rng(0)
    found = [wb.Calibration({"a": rng.integers(0, 100, 200)}, 99).p_values["a"] for _ in range(400)]
    assert abs(np.mean(np.array(found) < 0.1) - 0.1) < 4.5 * np.sqrt(0.1 * 0.9 / 400)


def test_bins_divide_the_ranks():
    for num_draws, num_simulations in ((99, 200), (63, 1000), (49, 40), (19, 160)):
        found = wb.Calibration({"a": np.zeros(num_simulations, int)}, num_draws)
        assert (num_draws + 1) % found.num_bins == 0
        assert found.num_bins >= 2
        assert min(found.p_values.values()) < 1e-6


@pytest.mark.parametrize("num_draws", [2, 10, 100, 102, 198])
def test_a_prime_number_of_ranks_is_tested_as_well(num_draws):
    """No equal bins but one: bins differ by one rank, and so does what they expect."""
    rng = np.random.default_rng(1)
    draws = rng.integers(0, num_draws + 1, (400, 200))
    found = [wb.Calibration({"a": ranks}, num_draws) for ranks in draws]
    assert 2 <= found[0].num_bins <= num_draws + 1
    widths = np.diff(found[0].bin_edges)
    assert widths.sum() == num_draws + 1
    assert np.ptp(widths) <= 1
    p_values = np.array([one.p_values["a"] for one in found])
    assert abs(np.mean(p_values < 0.1) - 0.1) < 4.5 * np.sqrt(0.1 * 0.9 / 400)
    assert np.mean([one.is_uniform for one in found]) > 0.96
    # Ranks that pile up in the lower half are found out.
    assert not wb.Calibration({"a": draws[0] // 2}, num_draws).is_uniform
    assert len(found[0].plot().axes) == 1


def test_ranks_can_be_seen():
    ranks = {f"w[{k}]": np.random.default_rng(k).integers(0, 20, 100) for k in range(5)}
    found = wb.Calibration(ranks, 19)
    assert len(found.plot().axes) == 5
    assert "mean rank" in str(found)


@pytest.mark.parametrize(("options", "words"), [
    ({"num_simulations": 3}, "at least"),
    ({"num_simulations": 50.0}, "whole number"),
    ({"simulate": 7}, "simulate"),
])  # fmt: skip
def test_bad_input_is_refused(options, words):
    with pytest.raises(wb.MethodError, match=words):
        wb.sbc(MODEL, **{"simulate": simulate, **options})


def test_an_interrupted_simulation_does_not_count(monkeypatch):
    """Its draws are fewer, and ranks among them are other ranks."""
    original = calibration.sample

    def interrupted(*args, num_samples, **options):
        return original(*args, num_samples=num_samples - 1, **options)

    monkeypatch.setattr(calibration, "sample", interrupted)
    with pytest.raises(KeyboardInterrupt, match="simulation 1"):
        wb.sbc(MODEL, simulate, num_simulations=40, num_samples=19, num_warmup=50)
