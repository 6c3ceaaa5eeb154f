"""Where seeds come from."""
