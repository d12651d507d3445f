"""Images described by another model, for models that cannot see."""
