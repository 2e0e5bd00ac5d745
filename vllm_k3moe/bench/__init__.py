"""Benchmarks: what the launches cost. Figures carry the device they come from."""
