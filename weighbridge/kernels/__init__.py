"""One file per move; each is ``init`` and ``step`` behind the one Kernel protocol."""

from weighbridge.kernels.adaptive_metropolis import AdaptiveMetropolis
from weighbridge.kernels.ensemble import Stretch
from weighbridge.kernels.gibbs import Gibbs
from weighbridge.kernels.hmc import HMC
from weighbridge.kernels.independence import Independence
from weighbridge.kernels.mala import MALA
from weighbridge.kernels.metropolis import Metropolis
from weighbridge.kernels.metropolis_hastings import MetropolisHastings
from weighbridge.kernels.nuts import NUTS, XHMC
from weighbridge.kernels.parallel_tempering import ParallelTempering
from weighbridge.kernels.population import PopulationMonteCarlo
from weighbridge.kernels.psgld import PSGLD
from weighbridge.kernels.rejection import Rejection
from weighbridge.kernels.rsghmc import RiemannianSGHMC
from weighbridge.kernels.schedule import RobbinsMonro
from weighbridge.kernels.sghmc import SGHMC
from weighbridge.kernels.sgld import SGLD
from weighbridge.kernels.sgnht import SGNHT
from weighbridge.kernels.simulated_tempering import SimulatedTempering
from weighbridge.kernels.slice import Slice
from weighbridge.kernels.windowed_hmc import WindowedHMC

__all__ = [
    "NUTS",
    "XHMC",
    "HMC",
    "MALA",
    "PSGLD",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "AdaptiveMetropolis",
    "Gibbs",
    "Independence",
    "Metropolis",
    "MetropolisHastings",
    "ParallelTempering",
    "PopulationMonteCarlo",
    "Rejection",
    "RiemannianSGHMC",
    "RobbinsMonro",
    "SimulatedTempering",
    "Slice",
    "Stretch",
    "WindowedHMC",
]
