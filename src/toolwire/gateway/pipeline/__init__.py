"""The path of a client request: route → prepare → attempt → relay. It begins in `pipeline.py`."""
