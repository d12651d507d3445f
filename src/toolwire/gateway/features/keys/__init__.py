"""Client keys: of the file and of the store, and who may do what with them."""
