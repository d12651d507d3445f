"""Objects that providers store for their accounts, and which key has created them."""
