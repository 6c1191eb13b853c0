"""The highest point of a posterior or a likelihood."""
