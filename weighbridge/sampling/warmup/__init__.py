"""What a warm-up learns: the step size, the metric, and when."""
