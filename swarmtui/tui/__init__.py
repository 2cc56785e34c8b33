"""The Textual face: frames in, keys out. Nothing here computes a figure."""
