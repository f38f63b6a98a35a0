"""autodiff: the tape of gradient rules and the functions that run it."""
