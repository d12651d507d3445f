"""The file `toolwire.toml` as a whole: `load.py` reads it, with the tables of all features; `live_config.py` reads it
again when it changes. The values are in `settings/` and in the features."""
