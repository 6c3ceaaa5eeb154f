"""The console's page: a template, a style sheet and a script, as a browser gets them."""
