"""Models that ship with the worker: their weights, and the code that a few of them need."""
