"""Numbers that several rooms share."""

# Mass inside an interval where none is asked for; it is the interval of highest density.
PROBABILITY = 0.94

# A normal distribution's standard deviation, as a multiple of its median absolute deviation.
MEDIAN_TO_DEVIATION = 1.4826
