"""One contract for every kernel: add a row here with a new kernel."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.base import Kernel, LogDensity
from weighbridge.target import Rows, Subsampled, Target

MATRIX = np.array([[1.0, 0, 0], [0.5, 1.0, 0], [0, -0.3, 2.0]])

# kernel, the same kernel with other numbers
KERNELS = {
    "metropolis": (wb.Metropolis(0.5), wb.Metropolis(0.7)),
    "metropolis-matrix": (wb.Metropolis(0.1, scale=MATRIX), wb.Metropolis(0.2, scale=np.eye(3))),
    "slice": (wb.Slice(0.5), wb.Slice(2.0, max_expansions=3)),
    "slice-coordinates": (
        wb.Slice(0.5, np.array([1.0, 0.5, 2.0]), along="coordinates"),
        wb.Slice(2.0, np.array([2.0, 1.5, 1.0]), along="coordinates"),
    ),
    "slice-matrix": (wb.Slice(0.5, scale=MATRIX), wb.Slice(2.0, scale=np.eye(3))),
    "stretch": (wb.Stretch(), wb.Stretch(0.5)),
    "hmc": (wb.HMC(0.1, 5), wb.HMC(0.2, 7)),
    "hmc-metric": (
        wb.HMC(0.1, 5, scale=np.array([1.0, 0.5, 2.0])),
        wb.HMC(0.2, 7, scale=np.array([2.0, 1.5, 1.0])),
    ),
    "hmc-matrix": (
        wb.HMC(0.1, 5, scale=MATRIX),
        wb.HMC(0.2, 7, scale=np.eye(3)),
    ),
    "sgld": (wb.SGLD(1e-3), wb.SGLD(2e-3, gradient_noise=1.0)),
    "sgld-schedule": (wb.SGLD(wb.RobbinsMonro(0.1)), wb.SGLD(wb.RobbinsMonro(0.2, 3.0))),
    "sghmc": (wb.SGHMC(1e-3, 0.1), wb.SGHMC(2e-3, 0.3, resample_every=2)),
    "sghmc-estimated": (
        wb.SGHMC(1e-3, 0.1, estimate_noise=True),
        wb.SGHMC(2e-3, 0.2, estimate_noise=True),
    ),
    "psgld": (wb.PSGLD(0.05), wb.PSGLD(0.1, 0.9, gradient_noise=1.0)),
    "psgld-corrected": (
        wb.PSGLD(0.05, estimate_noise=True, correct_drift=True),
        wb.PSGLD(0.1, 0.9, 0.1, estimate_noise=True, correct_drift=True),
    ),
    "sgnht": (wb.SGNHT(1e-3, 0.1), wb.SGNHT(2e-3, 0.3, rate=0.02, gradient_noise=1.0)),
    "sgnht-coordinates": (
        wb.SGNHT(1e-3, 0.1, per_coordinate=True, estimate_noise=True),
        wb.SGNHT(2e-3, 0.2, per_coordinate=True, estimate_noise=True),
    ),
    "rsghmc": (wb.RiemannianSGHMC(0.05), wb.RiemannianSGHMC(0.1, 0.3, damping=2.0)),
    "rsghmc-estimated": (
        wb.RiemannianSGHMC(0.05, estimate_noise=True),
        wb.RiemannianSGHMC(0.1, 0.3, damping=2.0, estimate_noise=True),
    ),
}


@pytest.fixture(params=KERNELS, ids=list(KERNELS))
def kernels(request):
    return KERNELS[request.param]


@pytest.fixture(scope="module")
def target():
    data = np.random.default_rng(0).normal(size=(50, 3))
    model = wb.Model(
        {"u": dist.Normal(0.0, 1.0).expand([3]).to_event(1)},
        lambda p, y: dist.Normal(p["u"], 1.0).log_prob(y).sum(),
    )
    return Target(model, (Subsampled(Rows(data, np.ones(50)), jax.random.key(7), 10),))


def start_of(kernel):
    """A position; for a kernel of ensembles a whole one."""
    if getattr(kernel, "ensemble", False):
        return 0.3 * np.random.default_rng(1).normal(size=(7, 3))
    return np.zeros(3)


init = jax.jit(lambda kernel, target: kernel.init(jnp.asarray(start_of(kernel)), target))
step_once = jax.jit(lambda kernel, key, state, target: kernel.step(key, state, target))


def advance(kernel, target, key, num_steps=5):
    state = init(kernel, target)
    for index in range(num_steps):
        state, info = step_once(kernel, jax.random.fold_in(key, index), state, target)
    return state, info


def test_follows_the_protocol(kernels, target):
    assert isinstance(kernels[0], Kernel)
    assert isinstance(target, LogDensity)
    assert isinstance(kernels[0].uses_batches, bool)


def test_is_deterministic(kernels, target):
    with jax.enable_x64(True):
        first, _ = advance(kernels[0], target, jax.random.key(1))
        again, _ = advance(kernels[0], target, jax.random.key(1))
        other, _ = advance(kernels[0], target, jax.random.key(2))
    np.testing.assert_array_equal(first.position, again.position)
    assert not np.array_equal(first.position, other.position)
    assert first.position.dtype == np.float64


def test_changing_its_numbers_or_the_batch_does_not_retrace(kernels, target):
    traces = []

    @jax.jit
    def step(key, kernel, state, target):
        traces.append(1)
        return kernel.step(key, state, target)

    with jax.enable_x64(True):
        as_arrays = [jax.tree_util.tree_map(jnp.asarray, kernel) for kernel in kernels]
        state = as_arrays[0].init(jnp.asarray(start_of(as_arrays[0])), target)
        for index, kernel in enumerate([*as_arrays, *as_arrays]):
            batch = target.subsample(jnp.asarray(index))
            batch = jax.tree_util.tree_map(jnp.asarray, batch)
            state, _ = step(jax.random.key(index), kernel, state, batch)
    assert sum(traces) == 1


def test_survives_a_round_trip_as_a_pytree(kernels, target):
    for kernel in kernels:
        leaves, structure = jax.tree_util.tree_flatten(kernel)
        again = structure.unflatten(leaves)
        assert type(again) is type(kernel)
        for field in dataclasses.fields(kernel):
            np.testing.assert_equal(getattr(again, field.name), getattr(kernel, field.name))
        assert leaves, "numeric fields are leaves"
    with jax.enable_x64(True):
        state, info = advance(kernels[0], target, jax.random.key(0))
        for tree in (state, info):
            leaves, structure = jax.tree_util.tree_flatten(tree)
            assert jax.tree_util.tree_structure(structure.unflatten(leaves)) == structure
            assert all(np.all(np.isfinite(np.asarray(leaf, float))) for leaf in leaves)


def test_resumes_where_it_stopped(kernels, target):
    """A state that went through host memory continues bit for bit."""
    kernel, key = kernels[0], jax.random.key(4)
    with jax.enable_x64(True):
        whole, _ = advance(kernel, target, key, 6)
        state, _ = advance(kernel, target, key, 3)
        state = jax.tree_util.tree_map(lambda leaf: jnp.asarray(np.asarray(leaf)), state)
        for index in range(3, 6):
            state, _ = step_once(kernel, jax.random.fold_in(key, index), state, target)
    np.testing.assert_array_equal(whole.position, state.position)


def test_uses_a_fresh_batch_only_if_it_says_so(kernels, target):
    """Kernels that keep the target as given see the same density on every step."""
    seen = []

    class Spy:
        def __init__(self, inner):
            self.inner = inner

        def __call__(self, position):
            return self.inner(position)

        def subsample(self, step):
            seen.append(int(step))
            return Spy(self.inner.subsample(step))

        def gradient_variance(self, position):
            return self.inner.gradient_variance(position)

    kernel, spy = kernels[0], Spy(target)
    with jax.enable_x64(True):
        state = kernel.init(jnp.asarray(start_of(kernel)), spy)
        for index in range(3):
            state, _ = kernel.step(jax.random.key(index), state, spy)
    assert seen == ([0, 1, 2] if kernels[0].uses_batches else [])


@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_rescaling_matches_a_rescaled_target(kernels, factor):
    """On a target stretched by sqrt(factor), the rescaled kernel makes the stretched move."""
    kernel = kernels[0]
    if kernel == KERNELS["sghmc-estimated"][0]:
        kernel = dataclasses.replace(kernel, estimate_noise=False)

    def gaussian(scale):
        model = wb.Model({"u": dist.Normal(0.0, scale).expand([3]).to_event(1)}, lambda p, y: 0.0)
        return Target(model, ())

    with jax.enable_x64(True):
        start = jnp.array([0.3, -0.2, 0.9]) + start_of(kernel)
        key = jax.random.key(0)
        plain, wide = gaussian(1.0), gaussian(np.sqrt(factor))
        state, _ = kernel.step(key, kernel.init(start, plain), plain)
        other = kernel.rescale(factor)
        stretched, _ = other.step(key, other.init(start * np.sqrt(factor), wide), wide)
    np.testing.assert_allclose(
        np.asarray(stretched.position), np.asarray(state.position) * np.sqrt(factor), rtol=1e-10
    )
