"""SGAIS on many rows: accuracy, time and memory, and what the order of the rows costs."""
