"""Running plans, once or by the thousand, and what came of them."""
