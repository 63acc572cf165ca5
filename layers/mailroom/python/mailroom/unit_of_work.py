"""The unit of work."""


class UnitOfWork:  # follows
    pass
