"""How a model for a table is made and learns: sizes, steps, looks, and a memory of rows."""
