"""What people and programs see: the endpoints, and the console."""
