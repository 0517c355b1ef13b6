"""Configuration: schemas, overrides and automatic sizes."""
