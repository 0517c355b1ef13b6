"""A table, whatever it comes in: frames, files and pieces of them, down to cells."""
