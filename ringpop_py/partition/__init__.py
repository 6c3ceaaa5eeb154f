"""One partition at work: drives its log, and serves requests to it."""
