"""Tile tables (CSV, JSON) with their provenance; data only."""
