"""``wb.integrate``: expectations and integrals of any function."""
