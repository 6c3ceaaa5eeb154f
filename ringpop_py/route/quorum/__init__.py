"""One request to several members of a key, and how many of them have to answer."""
