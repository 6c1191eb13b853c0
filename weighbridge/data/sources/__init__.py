"""Sources of observations: files, streams and chunks, read block by block in bounded memory."""
