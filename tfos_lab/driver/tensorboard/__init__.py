"""TensorBoard in the notebook: a process of this machine, behind the Jupyter server's login.

How a page travels: a browser asks the Jupyter server, or `http_server` where there is none. Both call `pages`, which
passes the request on to the run's unix socket and sandboxes the response. `server` serves the
socket, starts the process for the first who looks, and relays the bytes to it. It shows the run's event files: nodes
write them to a folder that this machine sees, or `tfos_lab.driver.files.events` fetches what they grow by.
"""
