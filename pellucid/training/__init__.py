"""Parameters from pairs: a loop of events and the folder they leave."""
