"""Credentials of clouds: tokens that live an hour, and signatures of requests (AWS, Google Cloud, Azure)."""
