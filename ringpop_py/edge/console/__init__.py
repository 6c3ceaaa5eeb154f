"""What people look at: the pictures of a cluster, and the page."""
