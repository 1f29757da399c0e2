"""What is wrong with a SQL92 expression, or with the values that it compares."""


class InvalidExpression(ValueError):
    """Not a valid expression; the text states what is wrong and where, in Apache's words."""


class Incomparable(ValueError):
    """Values that cannot be compared: the message does not match, whatever else is true. Text as in Java."""
