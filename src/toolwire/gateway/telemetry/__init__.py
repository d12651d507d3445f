"""What is seen from outside: one line an exchange, counters, and traces where they are asked for."""
