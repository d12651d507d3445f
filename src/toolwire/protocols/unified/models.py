"""Models have no families here: the provider behind the gateway knows what its model can do."""
