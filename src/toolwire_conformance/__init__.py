"""The conformance suite: cases as data, and a player that runs them against the library or a gateway. See README.md."""
