"""What belongs to the SCPO paper alone: its numbers, claims, questions and experiments."""
