"""wgburn_environment: the portable cache (records, stores, bundles). Imports nothing of ours."""
