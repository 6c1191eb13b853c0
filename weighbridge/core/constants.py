"""Numbers that several rooms share."""

# Default probability inside an interval; intervals are highest-density intervals.
PROBABILITY = 0.94

# Standard deviation of a normal distribution, divided by its median absolute deviation.
MEDIAN_TO_DEVIATION = 1.4826
