"""The values that travel with a request: what it asks, who asks, its upstreams and attempts, and the
interfaces by which the pipeline knows the features (`hooks.py`)."""
