"""Planning of changes and what they gave: pure, apart from the files of `kept`."""
