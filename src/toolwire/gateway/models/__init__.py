"""The models that the gateway can reach: their lists, what is known about them, and the embedded one."""
