"""wgburn_shaders: WGSL templates, the math library and the strict renderer. Knows no tensor and no
device."""
