"""Log, metrics and traces of the gateway. `telemetry.Telemetry` is the interface."""
