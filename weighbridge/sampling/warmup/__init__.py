"""The warm-up: the step size, the metric, and the windows in which they are learned."""
