"""The workbench in a browser: a local server over one session, and the page that it shows."""
