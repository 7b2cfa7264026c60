"""English to Spanish: the decoder of 2016 to the letter, what it was trained with, and real sentences."""
