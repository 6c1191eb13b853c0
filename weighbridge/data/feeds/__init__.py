"""Feeds: streams of rows with a cursor, cut to chunks that a resumed run gets again."""
