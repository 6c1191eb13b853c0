"""``wb.maximize``: the maximum of a posterior or a likelihood."""
