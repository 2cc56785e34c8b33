"""The face without a screen: progress on stderr, the result on stdout."""
