"""What a warm-up learns: the step size, the metric, and when."""

from weighbridge.adaptation.dual_averaging import DualAveraging
from weighbridge.adaptation.metric import Spread
from weighbridge.adaptation.windows import Window, plan_windows

__all__ = ["DualAveraging", "Spread", "Window", "plan_windows"]
