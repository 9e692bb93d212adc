"""A configuration on its way to production: as a file, as source, as a record of the decision, and running.

`export` writes it in any form, each with its evidence; `load_service` makes a running service of the file.
"""
