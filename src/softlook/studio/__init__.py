"""The studio: a page that shows the attention of a model, in the browser, in a notebook, or as one file."""
