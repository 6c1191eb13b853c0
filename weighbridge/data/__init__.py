"""Observations in memory: conversion to arrays, checks of rows, blocks of rows.

Here, *values* are a pytree of NumPy arrays (float64, int64 or bool) with one leading axis.
"""
