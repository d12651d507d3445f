"""What the gateway can do beside translating: one folder each. Features do not know each other."""
