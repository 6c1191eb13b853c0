"""One contract for every kernel: add a row here with a new kernel."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core.types import Kernel, LogDensity
from weighbridge.models.targets.batches import Subsampled
from weighbridge.models.targets.density import Target
from weighbridge.models.targets.rows import Rows
from weighbridge.sampling.chain_steps import is_tunable

MATRIX = np.array([[1.0, 0, 0], [0.5, 1.0, 0], [0, -0.3, 2.0]])


def shrink(key, position):
    return 0.8 * position + 0.5 * jax.random.normal(key, position.shape)


def log_shrink(to, given):
    return -2.0 * jnp.sum((to - 0.8 * given) ** 2)


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
    "windowed-hmc": (
        wb.WindowedHMC(0.1, 5, window=2, scale=MATRIX),
        wb.WindowedHMC(0.2, 7, window=8, scale=np.eye(3), jitter=0.1),
    ),
    "mala": (wb.MALA(0.2), wb.MALA(0.1)),
    "metropolis-hastings": (
        wb.MetropolisHastings(shrink, log_shrink),
        wb.MetropolisHastings(shrink, log_shrink, unit=0.5),
    ),
    "independence": (wb.Independence(np.zeros(3), 0.2), wb.Independence(np.ones(3), 0.3)),
    "rejection": (
        wb.Rejection(np.zeros(3), 0.3, log_bound=-228.0),
        wb.Rejection(np.full(3, 0.1), 0.4, log_bound=-227.0, max_tries=500),
    ),
    "adaptive-metropolis": (wb.AdaptiveMetropolis(), wb.AdaptiveMetropolis(0.2, 0.5, 0.1)),
    "parallel-tempering": (
        wb.ParallelTempering(wb.HMC(0.1, 5), (1.0, 0.3, 0.1)),
        wb.ParallelTempering(wb.HMC(0.2, 7), (1.0, 0.3, 0.1), num_adapt=9),
    ),
    "simulated-tempering": (
        wb.SimulatedTempering(wb.HMC(0.1, 5), (1.0, 0.3, 0.1)),
        wb.SimulatedTempering(wb.HMC(0.2, 7), (1.0, 0.3, 0.1), num_adapt=9, max_moves=50),
    ),
    "population": (wb.PopulationMonteCarlo(2), wb.PopulationMonteCarlo(2, None, None, 0.2, 9)),
    "gibbs": (wb.Gibbs({"u": wb.HMC(0.1, 5)}), wb.Gibbs({"u": wb.HMC(0.2, 7)})),
    "nuts": (wb.NUTS(0.1), wb.NUTS(0.2)),
    "nuts-metric": (wb.NUTS(0.1, MATRIX), wb.NUTS(0.2, np.eye(3))),
    "nuts-classic": (wb.NUTS(0.1, criterion="classic"), wb.NUTS(0.2, criterion="classic")),
    "xhmc": (wb.XHMC(0.1), wb.XHMC(0.2, threshold=0.2)),
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
    if kernel.ensemble:
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
    assert isinstance(kernels[0].uses_gradient, bool)
    assert isinstance(kernels[0].ensemble, bool)
    wanted = kernels[0].target_acceptance
    assert wanted is None or (0 < wanted < 1 and hasattr(kernels[0], "step_size"))


def test_what_a_kernel_does_not_say_has_one_default():
    class Standing(Kernel):
        def init(self, position, target):
            return position

        def step(self, key, state, target):
            return state, ()

        def rescale(self, variance):
            return self

    kernel = Standing()
    assert isinstance(kernel, Kernel)
    found = (kernel.uses_batches, kernel.uses_gradient, kernel.ensemble, kernel.num_adapt)
    assert found == (False, True, False, 0)
    assert kernel.target_acceptance is None
    assert not is_tunable(kernel)

    class Forgetful(Kernel):
        init, step = Standing.init, Standing.step

    with pytest.raises(TypeError, match="rescale"):
        Forgetful()


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
        state = init(as_arrays[0], target)
        for index, kernel in enumerate([*as_arrays, *as_arrays]):
            batch = target.subsample(jnp.asarray(index))
            batch = jax.tree_util.tree_map(jnp.asarray, batch)
            traced = step.trace(jax.random.key(index), kernel, state, batch)
        # What comes out fits in again: the next step is no new trace either.
        shapes = jax.tree_util.tree_map(lambda leaf: (leaf.shape, leaf.dtype), traced.out_info[0])
        assert shapes == jax.tree_util.tree_map(lambda leaf: (leaf.shape, leaf.dtype), state)
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
            self.inner, self.model = inner, inner.model

        def __call__(self, position):
            return self.inner(position)

        def subsample(self, step):
            seen.append(step)
            return Spy(self.inner.subsample(step))

        def gradient_variance(self, position):
            return self.inner.gradient_variance(position)

    @jax.jit
    def step(kernel, key, state, target):
        seen.clear()
        state, _ = kernel.step(key, state, Spy(target))
        return state, list(seen)

    kernel = kernels[0]
    with jax.enable_x64(True):
        state = init(kernel, target)
        if not kernel.uses_batches:
            step.trace(kernel, jax.random.key(0), state, target)
            assert seen == []
            return
        for index in range(3):
            state, steps = step(kernel, jax.random.key(index), state, target)
            assert [int(number) for number in steps] == [index]


def no_rows(parameters, row):
    return 0.0


def gaussian(scale):
    model = wb.Model({"u": dist.Normal(0.0, scale).expand([3]).to_event(1)}, no_rows)
    return Target(model, ())


def test_rescaling_matches_a_rescaled_target(kernels):
    """On a target stretched by sqrt(factor), the rescaled kernel makes the stretched move."""
    kernel, factor = kernels[0], 4.0
    if kernel == KERNELS["sghmc-estimated"][0]:
        kernel = dataclasses.replace(kernel, estimate_noise=False)

    @jax.jit
    def move(kernel, start, target):
        return kernel.step(jax.random.key(0), kernel.init(start, target), target)[0].position

    with jax.enable_x64(True):
        start = jnp.array([0.3, -0.2, 0.9]) + start_of(kernel)
        plain = move(jax.tree_util.tree_map(jnp.asarray, kernel), start, gaussian(1.0))
        other = jax.tree_util.tree_map(jnp.asarray, kernel.rescale(factor))
        stretched = move(other, start * np.sqrt(factor), gaussian(np.sqrt(factor)))
    np.testing.assert_allclose(
        np.asarray(stretched), np.asarray(plain) * np.sqrt(factor), rtol=1e-10
    )


def test_structures_tell_kernels_apart():
    """JAX keeps compiled programs by structure: two kernels of one structure could be mistaken."""
    kernels = [kernel for kernel, *_ in KERNELS.values()]
    for first, second in itertools.combinations(kernels, 2):
        alike = jax.tree_util.tree_structure(first) == jax.tree_util.tree_structure(second)
        assert not alike or type(first) is type(second)
