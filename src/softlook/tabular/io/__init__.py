"""Table input: data frames, arrays, files and chunked sources."""
