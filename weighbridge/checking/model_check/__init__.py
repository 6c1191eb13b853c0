"""``wb.check_model``: checks that a model is coded correctly."""
