"""Immutable structs shared by all packages; no I/O, and no imports from other packages of this project."""
