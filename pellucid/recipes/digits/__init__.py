"""The digit lessons of 2015 and 2016: their networks, their training, and what is told of it."""
