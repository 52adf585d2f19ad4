"""TensorBoard of a run, on the driver's side.

How a page travels: a browser asks the Jupyter server, or `http_server` where there is none. Both call `pages`, which
passes the request on (`forward`) to the run's unix socket and sandboxes the response (`sandbox`). `server` serves the
socket. While the cluster runs, `relay` carries the bytes through `tunnel` and the control channel to the TensorBoard
beside the chief (`tfos_lab.node.tensorboard`); afterwards, to one on this machine (`local`). Event files that only the
chief's host has are received by `event_files`.
"""
