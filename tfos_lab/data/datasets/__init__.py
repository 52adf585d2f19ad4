"""Example data sets: MNIST, and the passengers of the Titanic."""
