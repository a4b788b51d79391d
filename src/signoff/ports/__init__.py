"""What signoff needs from outside, one Protocol a file. Adapters implement them; only `app.py` knows which."""
