"""What the gateway is told: `toolwire.toml` and the environment, checked; and how a model's name leads to providers."""
