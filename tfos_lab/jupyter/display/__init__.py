"""The output of a cell: live in a notebook, plain text elsewhere, and static once the cell has ended."""
