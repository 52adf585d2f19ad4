"""TensorBoard in the notebook: a process of this machine, behind the Jupyter server's login.

How a page travels: a browser asks the Jupyter server, which asks the run's unix socket; or a port of this process,
where there is no Jupyter server. `server` serves both, and starts TensorBoard for the first who looks; `pages` passes
requests on and sandboxes the responses. It shows the run's event files: nodes write them to a folder that this machine
sees, or `tfos_lab.driver.output` fetches what they grow by.
"""
