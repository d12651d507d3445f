"""The embedded model: it calls the declared tools and answers from their results, the same every time."""
