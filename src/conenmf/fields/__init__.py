"""Doors of fields: cells, ratings, mutations and measurements, each in the words of its field."""
