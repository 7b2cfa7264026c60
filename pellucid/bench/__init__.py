"""How fast it is, how fast it could be, and where the time goes."""
