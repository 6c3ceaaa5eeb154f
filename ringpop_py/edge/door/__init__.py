"""The door for web applications in any language: requests at `--http-in`, for their owners."""
