"""Stops the time of day. Imported before the gateway, whose modules take `time.time` as they are imported."""

import time

STARTED = time.time()


def stopped_time() -> float:
    return STARTED


time.time = stopped_time
