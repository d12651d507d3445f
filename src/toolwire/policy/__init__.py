"""What an operator does to tools on their way: rules as values, what they do to a request, and the way back."""
