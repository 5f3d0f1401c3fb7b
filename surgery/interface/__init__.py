"""What people see: the command line, reports, pages, drawings and the generated documentation.

Nothing here computes a result: it asks the other wings, which never import from here.
"""
