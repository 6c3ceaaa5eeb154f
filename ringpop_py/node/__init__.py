"""A node as its application sees it, and the driver of its membership."""
