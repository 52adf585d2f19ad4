"""The output of a cell: live in a notebook, as text elsewhere, and what stays when the cell has ended."""
