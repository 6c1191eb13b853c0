"""Changes of a stream: found by a test, followed by segments."""
