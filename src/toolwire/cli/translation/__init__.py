"""Commands that translate, compare and test, without a configured gateway."""
