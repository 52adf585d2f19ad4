"""The user's function and its arguments as bytes, and what cannot be packed."""
