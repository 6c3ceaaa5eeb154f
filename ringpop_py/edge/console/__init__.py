"""What people look at: what is wrong with a cluster, its pictures, and the page."""
