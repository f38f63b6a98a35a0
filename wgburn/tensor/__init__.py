"""tensor: what a user holds. Methods build nodes through the bridge and compute nothing."""
