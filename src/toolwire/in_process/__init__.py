"""Toolwire inside of a program: an HTTP client for any SDK, whose requests any provider answers. There is no server.

client.py      the clients and transports for httpx2 and httpx, sync and async
engine.py      a gateway for one event loop; gives it requests, and their answers back
sender.py      the requests to providers, by the program's own HTTP library
recordings.py  exchanges with providers as files, and answers from them
recorded_case.py  such a file, and what the configuration said of its model
settings.py    the configuration: the gateway's, without what needs a server
"""
