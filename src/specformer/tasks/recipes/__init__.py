"""Recipes: named settings in YAML."""
