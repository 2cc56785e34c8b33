"""The Textual UI: it shows frames and sends commands, and computes no figures."""
