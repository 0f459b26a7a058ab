"""What went wrong for a user, as opposed to in our code."""


class UserError(Exception):
    """Something the user can mend. The message says what happened, why, and what to do."""
