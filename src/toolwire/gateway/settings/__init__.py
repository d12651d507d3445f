"""The settings of the gateway itself, as values, and how each table is read. Features have their own."""
