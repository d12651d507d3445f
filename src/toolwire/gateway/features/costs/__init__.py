"""What calls of providers have used and cost, kept in the store."""
