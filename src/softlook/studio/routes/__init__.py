"""The routes of the studio, under /api."""
