"""The path of a call: route → prepare → attempt → relay. It begins in `pipeline.py`."""
