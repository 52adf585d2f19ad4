"""The notebook: magics, cell options, the cell as a function, and its output."""
