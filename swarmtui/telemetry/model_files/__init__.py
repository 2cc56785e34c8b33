"""Read from the files of a model, without loading it, what a decode step reads: headers and settings, no weights."""
