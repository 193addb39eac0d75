"""When requests arrive: the arrival processes and what the user can say about them."""
