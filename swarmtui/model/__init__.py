"""What everything speaks of: immutable structs, without I/O; imports nothing else of this project."""
