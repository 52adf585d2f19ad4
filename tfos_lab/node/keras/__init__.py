"""Patches and callbacks for Keras, so that it trains on several nodes as in one process."""
