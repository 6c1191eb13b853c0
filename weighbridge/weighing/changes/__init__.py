"""Changes of a stream: a test that detects them, and runs in segments between them."""
