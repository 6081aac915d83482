"""Tools that make what the repository ships; none of them runs in a service."""
