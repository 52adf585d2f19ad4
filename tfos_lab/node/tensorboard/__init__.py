"""TensorBoard beside the chief, on the node's side.

`process` is the TensorBoard process itself, on a unix socket; `tunnel` carries streams between it and the driver, and
`event_files` sends the event files to a driver that does not see their folder.
"""
