"""What the hardware allows for a model at a batch size, and what of it a server reaches."""
