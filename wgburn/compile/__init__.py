"""compile: from pending nodes to a plan: normalise, simplify, layout, fuse, memory plan, lower."""
