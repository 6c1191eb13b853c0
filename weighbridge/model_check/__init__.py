"""A model against itself: does it compute what a posterior needs, and the same each time?"""

from weighbridge.model_check.checking import check_model
from weighbridge.model_check.report import Check, ModelReport

__all__ = ["Check", "ModelReport", "check_model"]
