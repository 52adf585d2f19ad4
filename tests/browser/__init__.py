"""A package, so that JupyterLab and Chromium end with its last test."""
