"""Answers to the requests of the page, as functions of a trace."""
