"""core: dtypes, shapes, errors and the lazy node. Knows no op, no device, no tensor."""
