"""The page that shows a model: what it is given, the service behind it, and the file it becomes."""
