"""The configuration: `load.py` reads `toolwire.toml`, `config.py` holds the result."""
