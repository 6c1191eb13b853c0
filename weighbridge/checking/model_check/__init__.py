"""A model against itself: does it compute what a posterior needs, and the same each time?"""
