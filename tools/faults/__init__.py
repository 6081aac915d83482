"""Faults that others had, what happens here instead, and whether the tests that show it ran."""
