"""Beam search: candidates, hypotheses, constraints and the search loop."""
