"""What goes over the wire and into stores: packed values, JSON as Go reads it, messages."""
