"""Tables and summaries of results: as text, as data frames, in a notebook."""
