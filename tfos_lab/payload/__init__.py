"""The user's function and its arguments as bytes, and diagnosis of what cannot be pickled."""
