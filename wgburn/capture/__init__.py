"""capture: running a function without computing, to see or keep what it would do."""
