"""Fork servers: warm processes that agents, children and TensorBoards are forked from within milliseconds."""
