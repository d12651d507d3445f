"""Policy rules of an operator: `apply_rules.py` changes the tools of a request, `effects.py` changes calls back."""
