"""Objects with a mailbox and a state each, at the owner of their key."""
