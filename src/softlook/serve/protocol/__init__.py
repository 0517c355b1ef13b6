"""HTTP protocol: request and response schemas, parsing, formatting."""
