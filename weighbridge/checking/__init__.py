"""Is the model any good, and is the sampler right? Checks of both."""
