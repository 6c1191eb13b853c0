"""One file per move; each is ``init`` and ``step`` behind the one Kernel protocol."""

from weighbridge.kernels.ensemble import Stretch
from weighbridge.kernels.hmc import HMC
from weighbridge.kernels.metropolis import Metropolis
from weighbridge.kernels.psgld import PSGLD
from weighbridge.kernels.rsghmc import RiemannianSGHMC
from weighbridge.kernels.schedule import RobbinsMonro
from weighbridge.kernels.sghmc import SGHMC
from weighbridge.kernels.sgld import SGLD
from weighbridge.kernels.sgnht import SGNHT
from weighbridge.kernels.slice import Slice

__all__ = [
    "HMC",
    "PSGLD",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "Metropolis",
    "RiemannianSGHMC",
    "RobbinsMonro",
    "Slice",
    "Stretch",
]
