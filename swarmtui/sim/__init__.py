"""The embedded simulator: an HTTP server with a model of an inference engine and a simulated GPU."""
