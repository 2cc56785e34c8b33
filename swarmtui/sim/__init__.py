"""The embedded simulator: a real HTTP server around a model of an engine, with a simulated GPU beside it."""
