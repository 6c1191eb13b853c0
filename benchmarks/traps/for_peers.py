"""Traps for other tools: a likelihood on the unit cube in NumPy, or on normal variables in JAX.

Nothing here imports weighbridge. The tools' adapters are those of ``benchmarks.peers``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from benchmarks.traps.catalogue import trap

# Quantiles of 0 and 1 are infinite.
EDGE = 1e-15
# UltraNest refuses -inf.
LOWEST = -1e300


class Cube:
    """A trap whose parameters are those of the unit cube.

    Attributes:
        dimension: number of coordinates.
    """

    def __init__(self, seed: int) -> None:
        self._trap = trap(seed)
        self.dimension = self._trap.dimension

    def transform(self, cube: Any) -> Any:
        """The cube itself."""
        return cube

    def log_likelihood(self, cube: np.ndarray) -> np.ndarray:
        """Log-likelihood at one or many points of the cube."""
        inside = np.clip(cube, EDGE, 1 - EDGE)
        values = self._trap.log_likelihood(self._trap.transform(inside))
        return np.maximum(np.nan_to_num(values, nan=LOWEST, neginf=LOWEST), LOWEST)


class NormalInJax:
    """The same on standard normal variables, as a callback of a compiled program."""

    def __init__(self, seed: int) -> None:
        self._cube = Cube(seed)
        self.dimension = self._cube.dimension

    def transform(self, cube: Any) -> Any:
        """Normal quantiles."""
        from jax.scipy.special import ndtri

        return ndtri(cube)

    def log_prior(self, z: Any) -> Any:
        """Log density of standard normal variables."""
        import jax.numpy as jnp

        return -0.5 * jnp.sum(z**2 + np.log(2 * np.pi), axis=-1)

    def log_likelihood(self, z: Any) -> Any:
        """Log-likelihood, on the host."""
        import jax

        def ask(z: Any) -> np.ndarray:
            return self._cube.log_likelihood(special.ndtr(np.asarray(z)))

        shape = jax.ShapeDtypeStruct(z.shape[:-1], z.dtype)
        return jax.pure_callback(ask, shape, z, vmap_method="broadcast_all")
