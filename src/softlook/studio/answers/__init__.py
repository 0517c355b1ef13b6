"""The answers of the studio, as functions of a trace."""
