"""The `wgburn` command. Owns: arguments and text on a terminal. What it shows, the API has too."""
