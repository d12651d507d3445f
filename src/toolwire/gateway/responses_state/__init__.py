"""State that clients leave with the gateway: answers to go on from, conversations, work in the background, seals."""
