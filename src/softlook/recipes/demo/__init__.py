"""The demo: dates in many languages to ISO 8601."""
