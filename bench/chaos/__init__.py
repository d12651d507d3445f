"""Faults, floods and kills, against real gateways on loopback."""
